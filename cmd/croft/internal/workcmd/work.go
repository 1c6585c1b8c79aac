// Package workcmd is croft work: it hands out work items, runs commands for
// them, and delivers their effects. Package work has the ledger, and package
// steward the dispatcher and the reconciler.
//
// Most commands run on one goroutine. croft work run has more: see queueWorker,
// attempt, console and untilEOF. It also runs a reconciler beside the worker.
// croft work dispatch --until-empty looks for due effects beside the
// dispatcher.
package workcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// app has the commands as methods.
type app struct{ *cli.App }

// Command is croft work.
func Command(a *cli.App) *cobra.Command { return (&app{a}).workCommand() }

func (a *app) workCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "work COMMAND",
		GroupID: cli.GroupHold,
		Short:   "Hand out work items whose completion counts once",
		Long: `The ledger keeps work items. A worker that claims an item holds a lease on it.
Every later write about the item, from the heartbeat to the completion, counts
only while that claim is the newest. Suppose a worker was presumed dead and
replaced, and wakes up again: it gets exit code 13, changes nothing and sets
nothing off. The effects of a completion go through an outbox. Each has a name
that stays the same in every attempt, so a receiver can tell a repetition.

The ledger is in a database: --store or CROFT_STORE with a sqlite:// or
postgres:// URL, or the URL of a "croft serve" in front of one. Without either it
is a SQLite file beside the default store, good for one machine. docs/work.md
explains the ideas.

An item is waiting, running, done, dead (its attempts are used up) or cancelled.
An effect is pending, sent, failed, or unknown: it may or may not have been
delivered.

An item's id may be abbreviated to its first digits, at least four, if no other
item begins so. An ambiguous one is an error that lists the items.

Exit codes, beyond those of every command:
  1   the ledger refuses: there is no such item, its state forbids it, or the
      idempotency key has other content
  11  nothing is ready (claim, run --once)
  13  the write does not count: the item has a newer owner`,
		Example: `  croft work add thumbnails '{"image": 17}'
  croft work run thumbnails -- ./make-thumbnail       # payload on stdin, result on stdout
  croft work ls thumbnails
  croft work stats
  croft work reassign 0198c0de00007000800000000000cafe --to gpu@two --note "host is going down"`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("missing argument: COMMAND")
			}
			return errors.New(cli.DidYouMean(fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath()),
				c.SuggestionsFor(args[0])))
		},
		SuggestionsMinimumDistance: 2,
		RunE:                       func(*cobra.Command, []string) error { return nil },
	}
	const (
		work, owner, look, hand, keep = "work", "owner", "look", "hand", "keep"
	)
	c.AddGroup(
		&cobra.Group{ID: work, Title: "Hand out work and do it:"},
		&cobra.Group{ID: owner, Title: "As the owner of an item:"},
		&cobra.Group{ID: look, Title: "Look:"},
		&cobra.Group{ID: hand, Title: "Act by hand:"},
		&cobra.Group{ID: keep, Title: "Keep the ledger going:"},
	)
	for _, group := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{work, []*cobra.Command{a.workAddCommand(), a.workRunCommand(), a.workClaimCommand()}},
		{owner, []*cobra.Command{
			a.workReportCommand(), a.workCheckpointCommand(), a.workEmitCommand(), a.workHeartbeatCommand(),
			a.workCompleteCommand(), a.workFailCommand(), a.workReleaseCommand(),
		}},
		{look, []*cobra.Command{
			a.workLsCommand(), a.workShowCommand(), a.workStatsCommand(), a.workQueuesCommand(),
			a.workRefusalsCommand(), a.workEffectsCommand(),
		}},
		{hand, []*cobra.Command{
			a.workReassignCommand(), a.workTakeoverCommand(), a.workCancelCommand(),
			a.workReplayCommand(), a.workRunNowCommand(), a.workPauseCommand(), a.workResumeCommand(),
			a.workLimitCommand(),
		}},
		{keep, []*cobra.Command{a.workReconcileCommand(), a.workDispatchCommand()}},
	} {
		for _, sub := range group.commands {
			sub.GroupID = group.id
			c.AddCommand(sub)
		}
	}
	return c
}
