package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/tenure"
)

// duration is a flag with a duration within bounds, in Go's notation. It
// refuses bad values before anything is opened. So --ttl 0 is an error, and
// does not mean the default.
type duration struct {
	value    *time.Duration
	least    time.Duration
	most     time.Duration
	forever  bool // the word "forever" is accepted
	examples string
}

// Set reads the flag.
func (d *duration) Set(text string) error {
	if d.forever && text == "forever" {
		*d.value = croft.Forever
		return nil
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("not a duration; write it as in %s", d.examples)
	}
	if v < d.least || v > d.most {
		return fmt.Errorf("it must be between %s and %s", d.least, d.most)
	}
	*d.value = v
	return nil
}

func (d *duration) String() string {
	if d.value == nil || *d.value == 0 {
		return "" // the usage text then says what the default means
	}
	if *d.value == croft.Forever {
		return "forever"
	}
	return d.value.String()
}

// Type names the flag's value in help texts.
func (d *duration) Type() string { return "duration" }

// ttlFlag defines --ttl, which is how long a lease lasts without renewal.
func ttlFlag(flags *pflag.FlagSet, value *time.Duration, def time.Duration, usage string) {
	*value = def
	flags.Var(&duration{value: value, least: tenure.MinTTL, most: tenure.MaxTTL, examples: "30s, 5m or 1h30m"}, "ttl",
		usage)
}

// spanFlag defines an optional period of at most a year.
func spanFlag(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flags.Var(&duration{value: value, most: tenure.MaxPeriod, examples: "30s, 5m or 24h"}, name, usage)
}

// waitFlag defines --wait, which is how long to wait for a held key.
func waitFlag(flags *pflag.FlagSet, value *time.Duration) {
	flags.Var(&duration{value: value, most: tenure.MaxPeriod, forever: true, examples: "30s, 5m, or forever"}, "wait",
		"how long to wait while the key is held, or \"forever\" (default: one try)")
}

// noteFlag defines --note, which is required: why somebody acts by hand.
func noteFlag(c *cobra.Command, note *string) {
	c.Flags().StringVar(note, "note", "", "why; it is kept with the act (required)")
	_ = c.MarkFlagRequired("note")
}
