package cli

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/croft-dev/croft/store"
)

// DefaultsHelp tells of configuration files in the help of commands that have
// --ttl, --every and --guard.
const DefaultsHelp = `A configuration file may set the TTL, the period and the guards of keys with a
common beginning: see "croft config --help". --ttl, --every and --guard win over
it. --every 0s asks for no period, and --guard none for no guard.`

// noGuard, given for a target, means that the key has no guards.
const noGuard = "none"

// ApplyDefaults sets the TTL, the period and the guards of a key as the
// configuration has them, unless flags give them.
func (a *App) ApplyDefaults(
	flags *pflag.FlagSet, key string, ttl, every *time.Duration, guards *[]string,
) error {
	if slices.Contains(*guards, noGuard) {
		if len(*guards) > 1 {
			return Invalid("--guard %s: it says that there is no guard, and another is given; for a file of this "+
				"name write ./%s", noGuard, noGuard)
		}
		*guards = nil
	}
	config, err := a.Config()
	if err != nil {
		return err
	}
	d := config.Of(key)
	if d.TTL != nil && !flags.Changed("ttl") {
		*ttl = d.TTL.Value
	}
	if d.Every != nil && !flags.Changed("every") && !flags.Changed("once") {
		if flags.Changed("slots") && d.Every.Value != 0 {
			return Invalid("--slots: %s sets a period for this key, and each slot would have periods of its own; "+
				"add --every 0s", d.Every.From.Where)
		}
		*every = d.Every.Value
	}
	if d.Guards != nil && !flags.Changed("guard") {
		if flags.Changed("slots") && len(d.Guards.Value) > 0 {
			return Invalid("--slots: %s sets a guard for this key, and a guard belongs to one key, while the slots "+
				"are several; add --guard none", d.Guards.From.Where)
		}
		*guards = d.Guards.Value
	}
	return nil
}

// ConfigFlag defines --config.
func (a *App) ConfigFlag(flags *pflag.FlagSet) {
	flags.StringVar(&a.ConfigPath, "config", "", "read this configuration `file` alone, or \"none\" (default "+
		"$CROFT_CONFIG, else croft.toml here or above, yours, and the system's)")
	a.ConfigGiven = func() bool { return flags.Changed("config") }
}

// CompleteStore completes the name of a store with those of the configuration.
// If none fits, the shell completes a path.
func (a *App) CompleteStore(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config, err := a.Config()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for name, s := range config.Stores() {
		names = append(names, cobra.CompletionWithDesc(name, Line(store.Redact(s.Value))))
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveDefault
}

// RaiseSettings returns the places of CROFT_RAISE and of the files, as "croft
// config show" prints them.
func (a *App) RaiseSettings() ([]Setting[string], error) {
	if _, err := a.AllowRaise(nil); err != nil {
		return nil, err
	}
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	var all []Setting[string]
	for _, place := range envPlaces() {
		all = append(all, Setting[string]{place, Origin{FromEnv, EnvRaise}})
	}
	return append(all, config.Raise()...), nil
}
