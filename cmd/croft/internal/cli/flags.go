package cli

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/tenure"
)

// Duration is a flag with a duration within bounds, as ParseDuration reads it.
// It refuses bad values before anything is opened. So --ttl 0 is an error, and
// does not mean the default.
type Duration struct {
	Value    *time.Duration
	Least    time.Duration
	Most     time.Duration
	Forever  bool // the word "forever" is accepted
	Examples string
}

// Set reads the flag.
func (d *Duration) Set(text string) error {
	if d.Forever && text == "forever" {
		*d.Value = croft.Forever
		return nil
	}
	v, err := ParseDuration(text)
	if err != nil {
		return fmt.Errorf("not a duration; write it as in %s", d.Examples)
	}
	if v < d.Least || v > d.Most {
		return fmt.Errorf("it must be between %s and %s", d.Least, Short(d.Most))
	}
	*d.Value = v
	return nil
}

// days is the part of a duration that Go's notation lacks, as in 1d12h.
var days = regexp.MustCompile(`^(\d{1,6})d(.*)$`)

// ParseDuration reads a duration in Go's notation, which may begin with days.
func ParseDuration(text string) (time.Duration, error) {
	m := days.FindStringSubmatch(text)
	if m == nil {
		return time.ParseDuration(text)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, err
	}
	whole, rest := time.Duration(n)*24*time.Hour, time.Duration(0)
	if m[2] != "" {
		if rest, err = time.ParseDuration(m[2]); err != nil {
			return 0, err
		}
	}
	if rest < 0 || n > maxDays || whole+rest < whole {
		return 0, fmt.Errorf("%q is no duration", text)
	}
	return whole + rest, nil
}

// maxDays is how many days a time.Duration can hold.
const maxDays = int(math.MaxInt64 / (24 * time.Hour))

func (d *Duration) String() string {
	if d.Value == nil || *d.Value == 0 {
		return "" // the usage text then says what the default means
	}
	if *d.Value == croft.Forever {
		return "forever"
	}
	return d.Value.String()
}

// Type names the flag's value in help texts.
func (d *Duration) Type() string { return "duration" }

// DefaultTTL is the TTL of "croft run" and "croft acquire" if nothing sets one.
const DefaultTTL = time.Minute

// TTLFlag defines --ttl, which is how long a lease lasts without renewal.
func TTLFlag(flags *pflag.FlagSet, value *time.Duration, def time.Duration, usage string) {
	*value = def
	flags.Var(&Duration{
		Value: value, Least: tenure.MinTTL, Most: tenure.MaxTTL, Examples: "30s, 5m, 1h30m or 1d",
	}, "ttl", usage)
}

// SpanFlag defines an optional period of at most a year.
func SpanFlag(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flags.Var(&Duration{Value: value, Most: tenure.MaxPeriod, Examples: "30s, 5m, 24h or 7d"}, name, usage)
}

// EveryFlags defines --every and --once. leave is the verb for a command that
// does not get the key: "leave" or "refuse".
func EveryFlags(c *cobra.Command, every *time.Duration, leave string) {
	flags := c.Flags()
	SpanFlag(flags, every, "every", "once per period: "+leave+" if the work has succeeded in this period; "+
		"the first success is in the middle of a period")
	once := flags.Bool("once", false, "once and never again: "+leave+" if the work has ever succeeded")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case *once && flags.Changed("every"):
			return Invalid("--once and --every: say once and for all, or once per period, not both")
		case *once:
			*every = tenure.Once
		}
		return nil
	}
}

// Period returns a period as people read it.
func Period(every time.Duration) string {
	if every == tenure.Once {
		return "once"
	}
	return every.String()
}

// WaitFlag defines --wait, which is how long to wait for a held key.
func WaitFlag(flags *pflag.FlagSet, value *time.Duration) {
	flags.Var(&Duration{Value: value, Most: tenure.MaxPeriod, Forever: true, Examples: "30s, 5m, or forever"}, "wait",
		"how long to wait while the key is held, or \"forever\" (default: one try); a terminal shows for whom")
}

// NoteFlag defines --note, which is required: why somebody acts by hand.
func NoteFlag(c *cobra.Command, note *string) {
	c.Flags().StringVar(note, "note", "", "why; it is kept with the act (required)")
	_ = c.MarkFlagRequired("note")
}
