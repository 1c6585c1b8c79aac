package holdcmd

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// terms say how a lease is to be held. Flags set them, and so does the message
// acquire: it sets the flags of a command that nobody runs. So both have the
// same bounds and the same defaults from configuration files.
type terms struct {
	lease   croft.LeaseOptions
	above   int64
	targets []string
	command *cobra.Command
}

// define defines the flags.
func (t *terms) define(c *cobra.Command) {
	t.command = c
	flags := c.Flags()
	cli.TTLFlag(flags, &t.lease.TTL, cli.DefaultTTL,
		"how long others wait if this machine dies; renewed at a third of it")
	cli.WaitFlag(flags, &t.lease.WaitFor)
	cli.EveryFlags(c, &t.lease.Every, "refuse")
	cli.SpanFlag(flags, &t.lease.HoldFor, "hold",
		"after success keep the key from everybody until this long after acquiring it")
	cli.SpanFlag(flags, &t.lease.StallAfter, "stall-after",
		"no longer renew if the parent has not reported progress for this long; the lease then ends with its TTL")
	cli.SpanFlag(flags, &t.lease.MaxHold, "max-hold", "lose the lease after this long, whatever the parent does")
	flags.Int64Var(&t.above, "above", 0,
		"ask for a token above this one: after a write was refused although you hold the lease")
	cli.GuardFlag(flags, &t.targets)
}

// check refuses bad values, and fills in the defaults of the configuration.
func (t *terms) check(a *cli.App, key string) error {
	if err := fence.CheckKey(key); err != nil {
		return err
	}
	if err := a.ApplyDefaults(t.command.Flags(), key, &t.lease.TTL, &t.lease.Every, &t.targets); err != nil {
		return err
	}
	t.lease.Above = fence.Token(t.above)
	if t.above < 0 || t.lease.Above > tenure.MaxAbove {
		return cli.Invalid("above %d: it must be between 0 and %d", t.above, tenure.MaxAbove)
	}
	return nil
}

// flagOf names the flags that members of the message acquire set.
var flagOf = map[string]string{
	"ttl": "ttl", "wait": "wait", "every": "every", "once": "once", "hold": "hold",
	"stall_after": "stall-after", "max_hold": "max-hold", "above": "above", "guards": "guard",
}

// termsOf reads the terms in a message acquire.
func termsOf(a *cli.App, key string, members map[string]json.RawMessage) (*terms, error) {
	t := &terms{}
	c := &cobra.Command{}
	t.define(c)
	for name, value := range members {
		if err := set(c.Flags(), name, value); err != nil {
			return nil, err
		}
	}
	if err := c.PreRunE(c, nil); err != nil {
		return nil, err
	}
	err := t.check(a, key)
	return t, err
}

// set sets a flag to the value of a member.
func set(flags *pflag.FlagSet, name string, value json.RawMessage) error {
	f := flags.Lookup(flagOf[name])
	var texts []string
	switch name {
	case "guards":
		if err := json.Unmarshal(value, &texts); err != nil {
			return cli.Invalid("guards: they are a list of texts")
		}
	case "once":
		var once bool
		if err := json.Unmarshal(value, &once); err != nil {
			return cli.Invalid("once: it is true or false")
		}
		texts = append(texts, strconv.FormatBool(once))
	case "above":
		var token int64
		if err := json.Unmarshal(value, &token); err != nil {
			return cli.Invalid("above: it is a token, a whole number")
		}
		texts = append(texts, strconv.FormatInt(token, 10))
	default:
		text := ""
		if name == "wait" && json.Unmarshal(value, &text) == nil && text == "forever" {
			texts = append(texts, text)
			break
		}
		d, err := seconds(name, value)
		if err != nil {
			return err
		}
		texts = append(texts, d.String())
	}
	for _, text := range texts {
		if err := f.Value.Set(text); err != nil {
			return cli.Invalid("%s: %v", name, err)
		}
	}
	f.Changed = true
	return nil
}

// seconds reads a duration, which is a number of seconds.
func seconds(name string, value json.RawMessage) (time.Duration, error) {
	var n float64
	if err := json.Unmarshal(value, &n); err != nil || n < 0 || n > longest.Seconds() {
		return 0, cli.Invalid("%s: it is a number of seconds, between 0 and %.0f", name, longest.Seconds())
	}
	return time.Duration(math.Round(n * float64(time.Second))), nil
}

// longest is longer than any duration that a lease can have.
const longest = 2 * tenure.MaxPeriod
