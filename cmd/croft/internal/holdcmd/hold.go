// Package holdcmd is croft hold: it holds leases for its parent process, which
// may be written in any language. docs/protocol.md describes the messages.
//
// # Goroutines
//
// The goroutine of the command (process.run) takes what happens, in order: a
// line of input, the end of input, a signal, the death of the parent, an output
// that nobody reads. It never waits for a store. So it answers verify at once.
//
// Each lease has a goroutine (lease.live). It acquires the key, and then serves
// the requests about its lease one after the other, until the lease is given
// back or lost. It has an inbox of limited size for them.
//
// One goroutine reads the input (readLines), and one writes the output
// (output.write). The queue before the output is bounded. Nobody waits for it:
// if it is full, the process gives its leases back and ends. So a parent that
// does not read cannot keep renewals waiting.
//
// process.mu protects the table of leases, and the grant of each lease, which
// the command's goroutine reads.
package holdcmd

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// Command is croft hold. version is the program's own, for the first message.
func Command(a *cli.App, version string) *cobra.Command {
	var t terms
	var multi bool
	c := &cobra.Command{
		Use:     "hold KEY | --multi",
		GroupID: cli.GroupHold,
		Short:   "Hold a lease for the parent process, which speaks JSON",
		Long: `Hold a lease for the process that started croft, in whatever language it is
written. Croft takes the lease on KEY, renews it, and tells the parent on
standard output when it is granted and when it is lost. The parent asks on
standard input. Both speak JSON, one object per line; docs/protocol.md describes
the messages. The clients for Python and TypeScript use it.

With --multi one process holds any number of leases, at most 1000: the parent
asks for each with the message acquire. Keys and flags then come in messages.

Renewal lives in this process, so an event loop that is blocked, or a long
garbage collection, cannot starve it. With --stall-after it depends on progress:
a parent that reports none loses the lease.

The end of standard input gives all leases back as failed: a parent that died
has not succeeded, and the next contender may try at once. So do an interrupt, the
death of the parent, and an output that the parent does not read.

` + cli.DefaultsHelp + `

Exit code 11 says that another holds the key or that --wait ran out, 12 that the
lease was lost, 14 that the store could not be reached. Without --multi croft
exits 0 once the lease is given back.`,
		Example: `  croft hold reports/daily --ttl 1m
  {"id": 1, "do": "verify"}
  {"id": 2, "do": "report", "marker": "page 17 of 40"}
  {"id": 3, "do": "release"}

  croft hold --multi
  {"id": 1, "do": "acquire", "lease": "a", "key": "pages/17", "ttl": 30, "wait": 5}
  {"id": 2, "do": "release", "lease": "a"}`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case multi && len(args) > 0:
				return errors.New("--multi takes no key: the message acquire names each")
			case multi:
				return nil
			}
			return cli.Takes("KEY")(nil, args)
		},
		ValidArgsFunction: a.CompleteKey,
	}
	t.define(c)
	var own []string // the flags that the message acquire has instead
	c.Flags().VisitAll(func(f *pflag.Flag) { own = append(own, f.Name) })
	c.Flags().BoolVar(&multi, "multi", false, "hold any number of leases, each asked for with the message acquire")
	c.RunE = func(c *cobra.Command, args []string) error {
		p := &process{app: a, leases: map[string]*lease{}}
		if !multi {
			if err := t.check(a, args[0]); err != nil {
				return p.refuse(version, err)
			}
			p.single = &request{do: doAcquire, lease: args[0], key: args[0], terms: &t}
		} else {
			for _, name := range own {
				if c.Flags().Changed(name) {
					return cli.Invalid("--%s with --multi: say it in the message acquire", name)
				}
			}
		}
		return p.serve(c.Context(), version)
	}
	return c
}
