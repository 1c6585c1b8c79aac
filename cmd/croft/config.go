package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "config show",
		GroupID: cli.GroupTool,
		Short:   "Show what configuration files say, and where",
		Long: `Croft reads up to three configuration files, written in TOML. A flag wins over
the environment, the environment over the project's file, that over yours, and
yours over the system's. Each setting is decided by itself.

  croft.toml                       the project's: in the working directory, or
                                   in the nearest folder above it
  ~/.config/croft/croft.toml       yours; ~ is your home in the password
                                   database, and XDG_CONFIG_HOME does not count
  /etc/croft/croft.toml            the system's

--config FILE, or CROFT_CONFIG, names one file instead. "none" reads no file.

  store = "prod"                   # a name, a directory or a URL
  raise = ["/srv/reports"]         # as --raise; yours and the system's only
  trust = ["/home/ann/reports"]    # projects that may name places; likewise

  [stores]                         # names for --store
  prod = "postgres://croft@db.example.com/jobs?sslmode=verify-full"

  [keys."reports/"]                # keys that begin so; the longest wins
  ttl = "5m"
  every = "1d"                     # or "once", or "0s" for no period
  guards = ["out/{key}.json"]      # from the file's folder, unless absolute

A word that is the name of a store means that store. Write ./prod for the
directory. If you define stores, croft makes no directory for another word.

Others may write a project's file: the author of a repository that you clone. So
it may choose one of your stores by its name, and set ttl and every. A store or
a guard of its own needs your trust, because croft would use your credentials
there. Croft reads no file that another user owns or may write to. A trusted
project may belong to another user. "/home/ann/src/*" trusts all folders below.`,
		Example: `  croft config show
  croft config show reports/daily      # as "croft run reports/daily" would have it
  croft --store prod status`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("missing argument: show")
			}
			return errors.New(cli.DidYouMean(fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath()),
				c.SuggestionsFor(args[0])))
		},
		SuggestionsMinimumDistance: 2,
		RunE:                       func(*cobra.Command, []string) error { return nil },
	}
	c.AddCommand(a.configShowCommand())
	return c
}

func (a *app) configShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show [KEY]",
		Short: "Print every setting in force, and where it comes from",
		Long: `Print every setting that is in force, and where it comes from: a flag, a
variable, or the line of a file. With a key, print the settings for that key.
Then list the files. Passwords are not shown. No store is opened.`,
		Example: `  croft config show
  croft config show reports/daily
  croft config show --json`,
		Args:              cli.Takes("[KEY]"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				if err := fence.CheckKey(args[0]); err != nil {
					return err
				}
			}
			return a.configShow(args)
		},
	}
}

// settingView is a setting in force.
type settingView struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Source  string `json:"source"` // flag, environment, project, user, system, named or default
	From    string `json:"from"`   // the flag, the variable or FILE:LINE
}

// configView is what "croft config show" prints.
type configView struct {
	Settings []settingView    `json:"settings"`
	Files    []cli.LookedFile `json:"files"`
}

func (v *configView) add(setting, value string, from cli.Origin) {
	v.Settings = append(v.Settings, settingView{setting, store.Redact(value), from.Source, from.Where})
}

// addDefaults adds the settings of a prefix or a key. name makes the name of a
// setting.
func (v *configView) addDefaults(d cli.KeyDefaults, name func(setting string) string) {
	if d.TTL != nil {
		v.add(name("ttl"), d.TTL.Value.String(), d.TTL.From)
	}
	if d.Every != nil {
		v.add(name("every"), cli.Period(d.Every.Value), d.Every.From)
	}
	if d.Guards != nil {
		for _, target := range d.Guards.Value {
			v.add(name("guards"), target, d.Guards.From)
		}
		if len(d.Guards.Value) == 0 {
			v.add(name("guards"), "", d.Guards.From)
		}
	}
}

// configShow prints the settings, or those for a key.
func (a *app) configShow(keys []string) error {
	config, err := a.Config()
	if err != nil {
		return err
	}
	st, word, err := a.StoreSetting()
	if err != nil {
		return err
	}
	raise, err := a.RaiseSettings()
	if err != nil {
		return err
	}
	v := configView{Files: append([]cli.LookedFile{}, config.Looked...)}
	v.add("store", st.Value, st.From)
	if len(keys) > 0 {
		d := config.Of(keys[0])
		if d.TTL == nil {
			d.TTL = &cli.Setting[time.Duration]{Value: cli.DefaultTTL, From: cli.Usual}
		}
		v.addDefaults(d, func(setting string) string { return setting })
	} else {
		stores := config.Stores()
		for _, name := range slices.Sorted(maps.Keys(stores)) {
			v.add("stores."+name, stores[name].Value, stores[name].From)
		}
		for _, d := range config.Prefixes() {
			v.addDefaults(d, func(setting string) string { return fmt.Sprintf("keys.%q.%s", d.Prefix, setting) })
		}
	}
	for _, s := range raise {
		v.add("raise", s.Value, s.From)
	}
	if len(keys) == 0 {
		for _, s := range config.Trust() {
			v.add("trust", s.Value, s.From)
		}
	}
	if a.JSON {
		a.Print(v)
		return nil
	}
	a.printConfig(v, word)
	return nil
}

func (a *app) printConfig(v configView, word string) {
	t := a.Table("SETTING", "VALUE", "FROM")
	t.Whole = true
	for _, s := range v.Settings {
		from := s.From
		if s.Setting == "store" && word != "" {
			from += " (" + word + ")"
		}
		t.Row(cli.PlainCell(cli.Line(s.Setting)), cli.PlainCell(cli.Word(s.Value)), cli.PlainCell(cli.Line(from)))
	}
	t.Flush()
	if len(v.Files) == 0 {
		fmt.Fprintln(a.Stdout, "\nno file is read")
		return
	}
	fmt.Fprintln(a.Stdout)
	files := a.Table("FILE", "OF", "STATE")
	files.Whole = true
	for _, f := range v.Files {
		state := f.State
		if f.Why != "" {
			state += ": " + f.Why
		}
		files.Row(cli.PlainCell(cli.Word(f.Path)), cli.PlainCell(f.Kind), cli.PlainCell(cli.Line(state)))
	}
	files.Flush()
}
