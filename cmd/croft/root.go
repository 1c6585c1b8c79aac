package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/cmd/croft/internal/drillcmd"
	"github.com/croft-dev/croft/cmd/croft/internal/holdcmd"
	"github.com/croft-dev/croft/cmd/croft/internal/mcpcmd"
	"github.com/croft-dev/croft/cmd/croft/internal/mcpservecmd"
	"github.com/croft-dev/croft/cmd/croft/internal/proxycmd"
	"github.com/croft-dev/croft/cmd/croft/internal/servecmd"
	"github.com/croft-dev/croft/cmd/croft/internal/workcmd"
)

// app has the commands as methods. They use the streams, the flags and the
// store of the run through cli.App.
type app struct{ *cli.App }

// commands lists every command. A new one is a file and a line here.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.runCommand(),
		a.acquireCommand(),
		a.renewCommand(),
		a.releaseCommand(),
		a.reportCommand(),
		a.checkpointCommand(),
		holdcmd.Command(a.App, built().Version),
		workcmd.Command(a.App),

		a.writeCommand(),
		a.readCommand(),
		a.guardCommand(),
		proxycmd.Command(a.App),
		a.mcpCommand(),

		a.statusCommand(),
		a.lsCommand(),
		a.inventoryCommand(),
		a.showCommand(),
		a.historyCommand(),
		a.watchCommand(),

		a.takeoverCommand(),
		a.revokeCommand(),

		servecmd.Command(a.App),
		drillcmd.Command(a.App), drillcmd.WorkerCommand(a.App),
		a.doctorCommand(),
		a.configCommand(),
		a.schemaCommand(),
		a.completionCommand(),
		a.manCommand(),
		a.versionCommand(),
	}
}

// mcpCommand is croft mcp with the command below it.
func (a *app) mcpCommand() *cobra.Command {
	c := mcpcmd.Command(a.App)
	c.AddCommand(mcpservecmd.Command(a.App, built().Version))
	return c
}

// The help lists the commands in the order of commands. All of cobra shares
// this setting, so it is made once.
func init() { cobra.EnableCommandSorting = false }

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "croft",
		Short: "Leases decide who may try; fences decide whose writes still count",
		Long: `Croft keeps background jobs from running twice, and stale workers from
overwriting newer results.

A lease says who may try. A fence guards the file or table that is written, and
says whose writes still count. Suppose a worker was presumed dead and replaced,
and wakes up again: the fence refuses its write.

All contenders share one store, named by --store, CROFT_STORE or a configuration
file (croft config --help). Without any of them, the store is .local/state/croft
in your home, as the password database has it. HOME does not count, so that
cron, sudo and shells agree. That is good for one machine. "croft doctor" tells
how fit a store is.
  /shared/croft                        a directory
  sqlite:///var/lib/croft.db           a file on one machine
  postgres://user@host/db              ?sslmode=verify-full over a network
  redis://host:6379/0                  rediss:// for TLS
  etcd://host1:2379,host2:2379/prefix  etcds:// for TLS
  s3://bucket/prefix
  gs://bucket/prefix
  https://host/                        a croft serve; http:// on this machine

Write durations as 30s, 5m, 1h30m, 7d or 1d12h.

Exit codes:
  0   done, or not your turn (run)
  1   output could not be written; doctor or drill found something bad;
      the ledger refuses: no such item, or its state forbids it (work)
  2   usage: wrong command, flag or value; nothing was attempted
  11  held by another
  12  the lease is lost or not owned: stop the work
  13  a write was refused by the fence: a newer owner is there
  14  the store or target could not be reached: outcome unknown, or nothing
      was changed if the message says so
  130 interrupted`,
		Example: `  croft run reports/daily -- ./publish.sh   # takes the lease, runs, renews, releases
  croft acquire reports/daily --ttl 5m      # prints a lease: pass it to renew and release
  croft write out/today.json -- generate    # refused if a newer owner has the job by now
  croft status                              # one screen: what is held, lapsing, stalled, refused, dead
  croft ls                                  # who holds what
  croft takeover reports/daily --note "host is down"`,
		Version:                    built().line(),
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version, with its commit and date")
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.AddGroup(
		&cobra.Group{ID: cli.GroupHold, Title: "Hold a lease:"},
		&cobra.Group{ID: cli.GroupWrite, Title: "Write under it:"},
		&cobra.Group{ID: cli.GroupLook, Title: "Look:"},
		&cobra.Group{ID: cli.GroupHand, Title: "Act by hand:"},
		&cobra.Group{ID: cli.GroupTool, Title: "About the tool and the store:"},
	)

	flags := root.PersistentFlags()
	flags.StringVar(&a.StoreURL, "store", "",
		"lease store: a directory, a URL, or a name of your configuration (default $CROFT_STORE, else that of "+
			"the configuration, else a directory under your home)")
	a.ConfigFlag(flags)
	flags.BoolVar(&a.JSON, "json", false, "print JSON, one object per line")
	flags.StringVar(&a.Owner, "owner", "",
		"who you are, in records and refusals (default $CROFT_OWNER, else user@host)")
	a.Timeout = 5 * time.Second
	flags.Var(&cli.Duration{Value: &a.Timeout, Least: 10 * time.Millisecond, Most: time.Hour, Examples: "5s or 1m"},
		"timeout",
		"how long the store may take for one answer; croft gives up after at most three times as long without any "+
			"(a whole listing: after a minute)")
	_ = root.RegisterFlagCompletionFunc("store", a.CompleteStore)
	a.StoreGiven = func() bool { return flags.Changed("store") }
	a.OwnerGiven = func() bool { return flags.Changed("owner") }

	root.AddCommand(a.commands()...)
	root.SetHelpCommand(a.helpCommand())
	root.InitDefaultHelpCmd()
	a.wrapCommands(root)
	return root
}

// wrapCommands wraps every command: when it starts, it sets started, reads the
// owner, and sets the bound on tokens.
func (a *app) wrapCommands(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			a.Started = true
			if a.OwnerGiven() && a.Owner == "" {
				return cli.Invalid("owner: it is empty; say who you are, or leave --owner out")
			}
			if !a.OwnerGiven() {
				a.Owner = os.Getenv(cli.EnvOwner)
			}
			if err := cli.SetMaxAhead(); err != nil {
				return err
			}
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		a.wrapCommands(sub)
	}
}

// usageErrorOf adds to cobra's error about the command line where the help is.
func (a *app) usageErrorOf(root *cobra.Command, args []string, err error) error {
	// Cobra may have failed before it read --json.
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	a.JSON = a.JSON || slices.Contains(args, "--json") || slices.Contains(args, "--json=true")

	path := root.CommandPath()
	if c, _, found := root.Find(args); found == nil {
		path = c.CommandPath()
	}
	// Cobra adds its suggestions as a second paragraph.
	message, near, suggested := strings.Cut(strings.TrimSpace(err.Error()), "\n\nDid you mean this?\n")
	if suggested {
		message = cli.DidYouMean(message, strings.Fields(near))
	}
	return &cli.UsageError{Message: message, Hint: fmt.Sprintf("see: %s --help", path)}
}
