package workcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
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

// byHand sends an operator's request for every item to the ledger, raises the
// fence, and prints the answers.
func (a *app) byHand(
	ctx context.Context, texts, raise []string, req work.Request, text func(work.Answer) string,
) error {
	allowed, err := a.AllowRaise(raise)
	if err != nil {
		return err
	}
	req.Secret, req.Actor = tenure.NewSecret(), a.Actor()
	if err := checkRequest(req, texts...); err != nil {
		return err
	}
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	ids, err := a.itemIDs(ctx, l, texts...)
	if err != nil {
		return err
	}
	requests := make([]work.Request, len(ids))
	for i, id := range ids {
		requests[i] = req
		requests[i].ID, requests[i].Secret = id, tenure.NewSecret()
	}
	return a.printTransfers(a.act(ctx, l, requests, allowed), text)
}

// checkRequest refuses bad ids and a bad request before anything is opened.
func checkRequest(req work.Request, texts ...string) error {
	if err := checkIDs(texts...); err != nil {
		return err
	}
	req.ID = work.NewID() // stands for all of them
	return req.Check()
}

func (a *app) workCancelCommand() *cobra.Command {
	req := work.Request{Verb: work.Cancel}
	var raise []string
	c := &cobra.Command{
		Use:   "cancel ID... --note WHY",
		Short: "Cancel items that wait or run",
		Long: `Cancel items that wait or run. The ledger refuses whatever their workers still
write. "croft work replay" brings a cancelled item back.

` + actFenceHelp,
		Example:           "  croft work cancel 0198c0de00007000800000000000cafe --note \"order was withdrawn\"",
		Args:              items,
		ValidArgsFunction: a.completeItems(work.Waiting, work.Running),
		RunE: func(c *cobra.Command, args []string) error {
			return a.byHand(c.Context(), args, raise, req,
				func(answer work.Answer) string { return fmt.Sprintf("%s: cancelled", answer.Item.ID) })
		},
	}
	cli.NoteFlag(c, &req.Note)
	cli.RaiseFlag(c, &raise)
	return c
}

func (a *app) workReassignCommand() *cobra.Command {
	req := work.Request{Verb: work.Reassign}
	var raise []string
	c := &cobra.Command{
		Use:   "reassign ID... --to OWNER --note WHY",
		Short: "Take items from their owners, for a named owner",
		Long: `Take items that wait or run from their present owners. The ledger burns a new
token. It refuses whatever the old owner still writes, with exit code 13. The
item waits, and until the time is up only the named owner can claim it. After
that anybody can.

` + actFenceHelp,
		Example:           `  croft work reassign 0198c0de00007000800000000000cafe --to gpu@two --note "host is down"`,
		Args:              items,
		ValidArgsFunction: a.completeItems(work.Waiting, work.Running),
		RunE: func(c *cobra.Command, args []string) error {
			return a.byHand(c.Context(), args, raise, req, func(answer work.Answer) string {
				rec := answer.Item.Record
				return fmt.Sprintf("%s: waits for %s until %s", answer.Item.ID, cli.Word(rec.Owner),
					cli.ClockTime(answer.Now, rec.Deadline))
			})
		},
	}
	cli.NoteFlag(c, &req.Note)
	cli.RaiseFlag(c, &raise)
	c.Flags().StringVar(&req.Owner, "to", "", "the `owner` that gets the items (required)")
	_ = c.MarkFlagRequired("to")
	cli.TTLFlag(c.Flags(), &req.TTL, 0,
		fmt.Sprintf("how long the items are kept for that owner (default %s)", work.DefaultReservation))
	return c
}

func (a *app) workReplayCommand() *cobra.Command {
	req := work.Request{Verb: work.Replay}
	var raise []string
	c := &cobra.Command{
		Use:   "replay ID... --note WHY",
		Short: "Bring dead or cancelled items back",
		Long: `Bring dead or cancelled items back: they wait again, with all their attempts.
Their effects keep their identity, so an effect that was sent is not sent under
another name.

--again is for an item that is done. All of it happens a second time, with its
effects. The effects get new identities, so receivers take them for new.

` + actFenceHelp,
		Example: `  croft work replay 0198c0de00007000800000000000cafe --note "the image server is back"
  croft work ls thumbnails --state dead --limit 0 --json | jq -r .id | xargs croft work replay --note "server is back"
  croft work replay 0198c0de00007000800000000000cafe --again --note "the customer asked for it again"`,
		Args:              items,
		ValidArgsFunction: a.completeItems(work.Dead, work.Cancelled),
		RunE: func(c *cobra.Command, args []string) error {
			return a.byHand(c.Context(), args, raise, req, func(answer work.Answer) string {
				return fmt.Sprintf("%s: waits again, generation %d", answer.Item.ID, answer.Item.Generation)
			})
		},
	}
	cli.NoteFlag(c, &req.Note)
	cli.RaiseFlag(c, &raise)
	c.Flags().BoolVar(&req.Again, "again", false,
		"also items that are done, in a new generation: their effects happen again")
	delayFlag(c.Flags(), &req.Delay, "delay", "how long they wait at least")
	return c
}

func (a *app) workTakeoverCommand() *cobra.Command {
	var note string
	var raise []string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "takeover ID --note WHY",
		Short: "Take an item yourself, to finish it by hand",
		Long: `Take an item that waits, runs or is dead from its present owner, and print the
lease, as claim does. Then complete the item by hand, fail it, or give it back.
The ledger refuses whatever the old owner still writes.

` + actFenceHelp,
		Example: `  (umask 077; croft work takeover 0198c0de00007000800000000000cafe --note "did it by hand" > lease)
  croft work complete @lease --result "done by hand"`,
		Args:              cli.Takes("ID"),
		ValidArgsFunction: a.completeItems(work.Waiting, work.Running, work.Dead),
		RunE: func(c *cobra.Command, args []string) error {
			allowed, err := a.AllowRaise(raise)
			if err != nil {
				return err
			}
			req := work.Request{Verb: work.Takeover, Note: note, TTL: ttl}
			return a.workTakeover(c.Context(), args[0], req, allowed)
		},
	}
	cli.NoteFlag(c, &note)
	cli.RaiseFlag(c, &raise)
	cli.TTLFlag(c.Flags(), &ttl, 10*time.Minute, "how long it is yours without a heartbeat")
	return c
}

func (a *app) workTakeover(ctx context.Context, text string, req work.Request, allowed guard.Allowed) error {
	req.Secret, req.Actor, req.Instance = tenure.NewSecret(), a.Actor(), identity.Instance()
	if err := checkRequest(req, text); err != nil {
		return err
	}
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	ids, err := a.itemIDs(ctx, l, text)
	if err != nil {
		return err
	}
	req.ID = ids[0]
	t := a.act(ctx, l, []work.Request{req}, allowed)[0]
	if t.Err != nil && !errors.Is(t.Err, work.ErrUnfenced) {
		return t.Err
	}
	call, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	it, err := l.Get(call, req.ID)
	if err != nil {
		return err
	}
	raised := a.printRaised(t, true)
	if a.JSON {
		a.Print(takeoverView{claimViewOf(it, req.Secret), raised})
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
	if t.Err != nil { // printRaised has said where and why
		return cli.ExitError(cli.ExitFailed)
	}
	return nil
}
