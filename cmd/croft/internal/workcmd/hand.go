package workcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/identity"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// items checks the arguments of commands that take one or more ids.
func items(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("missing argument: ID")
	}
	return nil
}

// byHand sends an operator's request for every item to the ledger, and prints
// the answers.
func (a *app) byHand(ctx context.Context, ids []string, req work.Request, text func(work.Answer) string) error {
	requests := make([]work.Request, len(ids))
	for i, id := range ids {
		requests[i] = req
		requests[i].ID, requests[i].Secret, requests[i].Actor = work.ID(id), tenure.NewSecret(), a.Actor()
	}
	answers, err := a.applied(ctx, requests...)
	if err != nil {
		return err
	}
	return a.printAnswers(answers, text)
}

func (a *app) workCancelCommand() *cobra.Command {
	req := work.Request{Verb: work.Cancel}
	c := &cobra.Command{
		Use:   "cancel ID... --note WHY",
		Short: "Cancel items that wait or run",
		Long: `Cancel items that wait or run. The ledger refuses whatever their workers still
write. "croft work replay" brings a cancelled item back.`,
		Example:           "  croft work cancel 0198c0de00007000800000000000cafe --note \"order was withdrawn\"",
		Args:              items,
		ValidArgsFunction: a.completeItems(work.Waiting, work.Running),
		RunE: func(c *cobra.Command, args []string) error {
			return a.byHand(c.Context(), args, req,
				func(answer work.Answer) string { return fmt.Sprintf("%s: cancelled", answer.Item.ID) })
		},
	}
	cli.NoteFlag(c, &req.Note)
	return c
}

func (a *app) workReassignCommand() *cobra.Command {
	req := work.Request{Verb: work.Reassign}
	c := &cobra.Command{
		Use:   "reassign ID... --to OWNER --note WHY",
		Short: "Take items from their owners, for a named owner",
		Long: `Take items that wait or run from their present owners. The ledger burns a new
token. It refuses whatever the old owner still writes, with exit code 13. The
item waits, and until the time is up only the named owner can claim it. After
that anybody can.`,
		Example:           `  croft work reassign 0198c0de00007000800000000000cafe --to gpu@two --note "host is down"`,
		Args:              items,
		ValidArgsFunction: a.completeItems(work.Waiting, work.Running),
		RunE: func(c *cobra.Command, args []string) error {
			return a.byHand(c.Context(), args, req, func(answer work.Answer) string {
				rec := answer.Item.Record
				return fmt.Sprintf("%s: waits for %s until %s", answer.Item.ID, cli.Word(rec.Owner),
					cli.ClockTime(answer.Now, rec.Deadline))
			})
		},
	}
	cli.NoteFlag(c, &req.Note)
	c.Flags().StringVar(&req.Owner, "to", "", "the `owner` that gets the items (required)")
	_ = c.MarkFlagRequired("to")
	cli.TTLFlag(c.Flags(), &req.TTL, 0,
		fmt.Sprintf("how long the items are kept for that owner (default %s)", work.DefaultReservation))
	return c
}

func (a *app) workReplayCommand() *cobra.Command {
	req := work.Request{Verb: work.Replay}
	c := &cobra.Command{
		Use:   "replay ID... --note WHY",
		Short: "Bring dead or cancelled items back",
		Long: `Bring dead or cancelled items back: they wait again, with all their attempts.
Their effects keep their identity, so an effect that was sent is not sent under
another name.

--again is for an item that is done. All of it happens a second time, with its
effects. The effects get new identities, so receivers take them for new.`,
		Example: `  croft work replay 0198c0de00007000800000000000cafe --note "the image server is back"
  croft work ls thumbnails --state dead --limit 0 --json | jq -r .id | xargs croft work replay --note "server is back"
  croft work replay 0198c0de00007000800000000000cafe --again --note "the customer asked for it again"`,
		Args:              items,
		ValidArgsFunction: a.completeItems(work.Dead, work.Cancelled),
		RunE: func(c *cobra.Command, args []string) error {
			return a.byHand(c.Context(), args, req, func(answer work.Answer) string {
				return fmt.Sprintf("%s: waits again, generation %d", answer.Item.ID, answer.Item.Generation)
			})
		},
	}
	cli.NoteFlag(c, &req.Note)
	c.Flags().BoolVar(&req.Again, "again", false,
		"also items that are done, in a new generation: their effects happen again")
	delayFlag(c.Flags(), &req.Delay, "delay", "how long they wait at least")
	return c
}

func (a *app) workTakeoverCommand() *cobra.Command {
	var note string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "takeover ID --note WHY",
		Short: "Take an item yourself, to finish it by hand",
		Long: `Take an item that waits, runs or is dead from its present owner, and print the
lease, as claim does. Then complete the item by hand, fail it, or give it back.
The ledger refuses whatever the old owner still writes.`,
		Example: `  (umask 077; croft work takeover 0198c0de00007000800000000000cafe --note "did it by hand" > lease)
  croft work complete @lease --result "done by hand"`,
		Args:              cli.Takes("ID"),
		ValidArgsFunction: a.completeItems(work.Waiting, work.Running, work.Dead),
		RunE: func(c *cobra.Command, args []string) error {
			return a.workTakeover(c.Context(),
				work.Request{Verb: work.Takeover, ID: work.ID(args[0]), Note: note, TTL: ttl})
		},
	}
	cli.NoteFlag(c, &note)
	cli.TTLFlag(c.Flags(), &ttl, 10*time.Minute, "how long it is yours without a heartbeat")
	return c
}

func (a *app) workTakeover(ctx context.Context, req work.Request) error {
	req.Secret, req.Actor, req.Instance = tenure.NewSecret(), a.Actor(), identity.Instance()
	if err := req.Check(); err != nil {
		return err
	}
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if answer := a.apply(ctx, l, []work.Request{req})[0]; answer.Err != nil {
		return answer.Err
	}
	call, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	it, err := l.Get(call, req.ID)
	if err != nil {
		return err
	}
	if a.JSON {
		a.Print(claimViewOf(it, req.Secret))
	} else {
		fmt.Fprintln(a.Stdout, it.Deed(req.Secret).Text())
	}
	if a.Stdout.Err != nil {
		// Keep the item: giving it back would let in the owner whom the
		// operator wants out.
		a.Stdout.Reported = true
		fmt.Fprintf(a.Stderr, "croft: the lease could not be printed (%v); the item is yours for %s all the same\n",
			a.Stdout.Err, it.Record.TTL)
		return cli.ExitError(cli.ExitFailed)
	}
	return nil
}
