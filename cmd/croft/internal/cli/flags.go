package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/tenure"
)

// Duration is a flag with a duration within bounds, in Go's notation. It
// refuses bad values before anything is opened. So --ttl 0 is an error, and
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
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("not a duration; write it as in %s", d.Examples)
	}
	if v < d.Least || v > d.Most {
		return fmt.Errorf("it must be between %s and %s", d.Least, d.Most)
	}
	*d.Value = v
	return nil
}

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

// TTLFlag defines --ttl, which is how long a lease lasts without renewal.
func TTLFlag(flags *pflag.FlagSet, value *time.Duration, def time.Duration, usage string) {
	*value = def
	flags.Var(&Duration{Value: value, Least: tenure.MinTTL, Most: tenure.MaxTTL, Examples: "30s, 5m or 1h30m"}, "ttl",
		usage)
}

// SpanFlag defines an optional period of at most a year.
func SpanFlag(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flags.Var(&Duration{Value: value, Most: tenure.MaxPeriod, Examples: "30s, 5m or 24h"}, name, usage)
}

// EveryFlags defines --every and --once. leave is the verb for a command that
// does not get the key: "leave" or "refuse".
func EveryFlags(c *cobra.Command, every *time.Duration, leave string) {
	flags := c.Flags()
	SpanFlag(flags, every, "every", "once per period: "+leave+" if the work has succeeded in this period; "+
		"the first success is in the middle of a period")
	once := flags.VarPF(onceFlag{every}, "once", "", "once and never again: "+leave+" if the work has ever succeeded")
	once.NoOptDefVal = "true"
	c.PreRunE = func(*cobra.Command, []string) error {
		if flags.Changed("every") && flags.Changed("once") {
			return Invalid("--once and --every: say once and for all, or once per period, not both")
		}
		return nil
	}
}

// onceFlag is the flag --once, which sets a period.
type onceFlag struct{ every *time.Duration }

func (f onceFlag) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if on {
		*f.every = tenure.Once
	}
	return err
}

func (f onceFlag) String() string {
	return strconv.FormatBool(f.every != nil && *f.every == tenure.Once)
}
func (f onceFlag) Type() string     { return "bool" }
func (f onceFlag) IsBoolFlag() bool { return true }

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
		"how long to wait while the key is held, or \"forever\" (default: one try)")
}

// NoteFlag defines --note, which is required: why somebody acts by hand.
func NoteFlag(c *cobra.Command, note *string) {
	c.Flags().StringVar(note, "note", "", "why; it is kept with the act (required)")
	_ = c.MarkFlagRequired("note")
}
