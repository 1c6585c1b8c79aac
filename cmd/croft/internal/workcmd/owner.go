package workcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/excerpt"
	"github.com/croft-dev/croft/work"
)

// byClaim sends a request of an item's owner to the ledger, and prints the
// answer. The argument or CROFT_LEASE names the owner's lease.
func (a *app) byClaim(ctx context.Context, args []string, req work.Request, text func(work.Answer) string) error {
	deed, err := a.Deed(args)
	if err != nil {
		return err
	}
	if _, req.ID, err = work.ItemOf(deed); err != nil {
		return cli.Invalid("lease: it is on the key %s, which is no work item; pass what croft work claim printed",
			cli.Word(deed.Key))
	}
	req.Token, req.Secret = deed.Token, deed.Secret
	answers, err := a.applied(ctx, req)
	if err != nil {
		return err
	}
	return a.printAnswers(answers, text)
}

func (a *app) workReportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report MARKER [@FILE|-]",
		Short: "Report how far the work on an item has got",
		Long: `Report progress: one line that ls and show display with its age. It proves that
the work advances, which a heartbeat does not. It does not move the deadline.
Under "croft work run --stall-after" a command loses its item if it reports
nothing for that long.

` + workLeaseHelp,
		Example: `  croft work report "page 17 of 40"          # inside croft work run
  croft work report "page 17 of 40" @lease`,
		Args:              cli.Takes("MARKER", "[LEASE]"),
		ValidArgsFunction: cli.CompleteNothingThenLease,
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "" {
				return cli.Invalid("marker: it is empty; say how far the work has got")
			}
			return a.byClaim(c.Context(), args[1:], work.Request{Verb: work.Report, Progress: args[0]},
				func(answer work.Answer) string {
					return fmt.Sprintf("%s: %s", answer.Item.ID, cli.Line(args[0]))
				})
		},
	}
}

func (a *app) workCheckpointCommand() *cobra.Command {
	in := cli.Content{What: "checkpoint", Most: work.MaxPayload}
	c := &cobra.Command{
		Use:   "checkpoint STATE|- [@FILE|-]",
		Short: "Save what the next owner of an item shall begin with",
		Long: `Save a checkpoint. If this owner does not finish, the next one gets the
checkpoint with the item. Inside "croft work run" CROFT_CHECKPOINT names a file
with it. A checkpoint counts as progress, has at most 1 MiB, and is forgotten
when the item is done. With --from the only argument is the lease.

` + workLeaseHelp,
		Example: `  croft work checkpoint '{"page": 17}'
  croft work checkpoint --from state.bin
  generate-state | croft work checkpoint - @lease`,
		Args:              cli.Takes("[STATE]", "[LEASE]"),
		ValidArgsFunction: cli.CompleteNothingThenLease,
		RunE: func(c *cobra.Command, args []string) error {
			data, lease, err := in.ReadBeforeLease(a.App, c, args)
			if err != nil {
				return err
			}
			return a.byClaim(c.Context(), lease, work.Request{Verb: work.Checkpoint, State: data},
				func(answer work.Answer) string {
					return fmt.Sprintf("%s: saved %s", answer.Item.ID, cli.BytesText(int64(len(data))))
				})
		},
	}
	in.Flag(c)
	return c
}

func (a *app) workHeartbeatCommand() *cobra.Command {
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "heartbeat [@FILE|-]",
		Short: "Keep an item that was claimed by hand",
		Long: `Move the deadline of an item to the ledger's time plus the TTL. "croft work run"
does so by itself.

` + workLeaseHelp,
		Example:           "  croft work heartbeat @lease\n  croft work heartbeat @lease --ttl 10m",
		Args:              cli.Takes("[LEASE]"),
		ValidArgsFunction: cli.CompleteLease,
		RunE: func(c *cobra.Command, args []string) error {
			return a.byClaim(c.Context(), args, work.Request{Verb: work.Heartbeat, TTL: ttl},
				func(answer work.Answer) string {
					return fmt.Sprintf("%s: kept for %s, until %s", answer.Item.ID,
						cli.Short(answer.Item.Record.Deadline.Sub(answer.Now)),
						cli.ClockTime(answer.Now, answer.Item.Record.Deadline))
				})
		},
	}
	cli.TTLFlag(c.Flags(), &ttl, 0, "a new TTL (default: that of the claim)")
	return c
}

func (a *app) workCompleteCommand() *cobra.Command {
	in := cli.Content{What: "result", Most: work.MaxPayload}
	var result, effects string
	c := &cobra.Command{
		Use:   "complete [@FILE|-]",
		Short: "Complete an item, with its result and effects",
		Long: `Complete an item. The ledger writes its result and its effects in one step, or
not at all. Completing it again with the same lease is no error and changes
nothing: the first result stands, and --json shows it.

An effect is delivered after the completion, by "croft work dispatch". --effects
names a file with one JSON object per line:
  {"name": "mail/customer", "to": "mail", "body": {"order": 4711}, "at_most_once": true}
Only name is required. to is the destination, by default the name. body is any
JSON. It is sent as it stands, but a string is sent as its text. Use
"body_base64" for bytes that are no text.

` + workLeaseHelp,
		Example: `  croft work complete @lease --result ok
  croft work complete @lease --from result.json --effects effects.jsonl`,
		Args:              cli.Takes("[LEASE]"),
		ValidArgsFunction: cli.CompleteLease,
		RunE: func(c *cobra.Command, args []string) error {
			req := work.Request{Verb: work.Complete}
			var given []string
			if c.Flags().Changed("result") {
				given = []string{result}
			}
			var err error
			if req.Result, _, err = in.Read(a.App, given); err != nil {
				return err
			}
			if effects != "" {
				if req.Effects, err = readEffects(effects); err != nil {
					return err
				}
			}
			return a.byClaim(c.Context(), args, req, func(answer work.Answer) string {
				if answer.Repeated {
					return fmt.Sprintf("%s: done already; the first result stands", answer.Item.ID)
				}
				return fmt.Sprintf("%s: done", answer.Item.ID)
			})
		},
	}
	c.Flags().StringVar(&result, "result", "", "the result as `text`, or - for standard input (default: none)")
	in.Flag(c)
	c.Flags().StringVar(&effects, "effects", "", "a `file` with the effects, one JSON object per line")
	return c
}

func (a *app) workFailCommand() *cobra.Command {
	req := work.Request{Verb: work.Fail}
	c := &cobra.Command{
		Use:   "fail [@FILE|-]",
		Short: "Say that the attempt at an item failed",
		Long: `Say that the attempt failed. The item waits for the next attempt, longer each
time (1s, 2s, 4s … 1h). It is dead when its attempts are used up, or with
--final. "croft work replay" brings it back.

` + workLeaseHelp,
		Example: `  croft work fail @lease --error "disk full"
  croft work fail @lease --error "no such image" --final
  croft work fail @lease --error "rate limited" --retry-in 10m`,
		Args:              cli.Takes("[LEASE]"),
		ValidArgsFunction: cli.CompleteLease,
		RunE: func(c *cobra.Command, args []string) error {
			req.Error = excerpt.Of(req.Error, work.MaxError)
			return a.byClaim(c.Context(), args, req, func(answer work.Answer) string {
				if answer.Item.State == work.Dead {
					return fmt.Sprintf("%s: dead after %d of %d attempts", answer.Item.ID, answer.Item.Attempts,
						answer.Item.Limit)
				}
				return fmt.Sprintf("%s: %s, %d of %d attempts used", answer.Item.ID, answer.Item.State,
					answer.Item.Attempts, answer.Item.Limit)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&req.Error, "error", "", "why, as `text`; it is kept with the item (required)")
	_ = c.MarkFlagRequired("error")
	flags.BoolVar(&req.Final, "final", false, "trying again would not help: the item is dead")
	delayFlag(flags, &req.Delay, "retry-in", "when to try again (default: a backoff that doubles with each attempt)")
	return c
}

func (a *app) workReleaseCommand() *cobra.Command {
	req := work.Request{Verb: work.Release}
	c := &cobra.Command{
		Use:   "release [@FILE|-]",
		Short: "Give an item back; the attempt does not count",
		Long: `Give an item back that could not be begun, or need not be finished here. It
waits again, at its old position in the queue, and the attempt does not count.

` + workLeaseHelp,
		Example:           "  croft work release @lease\n  croft work release @lease --delay 5m",
		Args:              cli.Takes("[LEASE]"),
		ValidArgsFunction: cli.CompleteLease,
		RunE: func(c *cobra.Command, args []string) error {
			return a.byClaim(c.Context(), args, req, func(answer work.Answer) string {
				return fmt.Sprintf("%s: waits again", answer.Item.ID)
			})
		},
	}
	delayFlag(c.Flags(), &req.Delay, "delay", "the least time that it waits")
	return c
}
