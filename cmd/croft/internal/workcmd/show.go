package workcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

func (a *app) workShowCommand() *cobra.Command {
	var raw string
	parts := []string{"payload", "checkpoint", "result"}
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show everything the ledger knows of one item",
		Long: `Show everything the ledger knows of one item: its state, payload, result, its
owners and why they followed each other, and its effects. In JSON, payload,
checkpoint and result are in base64. --raw prints one of them as it is. On a
terminal it escapes unprintable characters.`,
		Example: `  croft work show 0198c0de00007000800000000000cafe
  croft work show 0198c0de00007000800000000000cafe --raw result > result.json`,
		Args:              cli.Takes("ID"),
		ValidArgsFunction: a.completeItems(),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkIDs(args[0]); err != nil {
				return err
			}
			switch raw {
			case "", "payload", "checkpoint", "result":
				return a.workShow(c.Context(), args[0], raw)
			}
			return cli.Invalid("--raw %q: it must be payload, checkpoint or result", raw)
		},
	}
	c.Flags().StringVar(&raw, "raw", "", "print only this `part`, as it is: payload, checkpoint or result")
	_ = c.RegisterFlagCompletionFunc("raw", cobra.FixedCompletions(parts, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) workShow(ctx context.Context, text, raw string) error {
	return a.withLedger(ctx, func(ctx context.Context, l work.Ledger, now time.Time) error {
		ids, err := a.itemIDs(ctx, l, text)
		if err != nil {
			return err
		}
		it, err := l.Get(ctx, ids[0])
		if err != nil {
			return err
		}
		switch {
		case raw != "":
			part := map[string][]byte{"payload": it.Payload, "checkpoint": it.Checkpoint, "result": it.Result}[raw]
			a.PrintRaw(part)
			return nil
		case a.JSON:
			a.Print(itemViewOf(it, now))
			return nil
		}
		a.describeItem(it, now)
		return a.describeEffects(ctx, l, it.ID, now)
	})
}

func (a *app) describeItem(it work.Item, now time.Time) {
	p := a.Palette()
	fmt.Fprintln(a.Stdout, p.Paint(cli.Bold, string(it.ID)))
	say := func(name, format string, args ...any) {
		fmt.Fprintf(a.Stdout, "  %s%s\n", p.Paint(cli.Faint, fmt.Sprintf("%-12s", name)), fmt.Sprintf(format, args...))
	}
	say("queue", "%s", cli.Word(it.Queue))
	if it.Partition != "" {
		say("partition", "%s", cli.Word(it.Partition))
	}
	if it.Unique != "" {
		say("unique", "%s", cli.Word(it.Unique))
	}
	state, colour := itemState(it, now)
	shown, rec := p.Paint(colour, state), it.Record
	switch state {
	case "waiting":
		say("state", "%s, ready for %s", shown, cli.Short(max(now.Sub(it.Ready), 0)))
	case "scheduled":
		say("state", "%s %s, at %s", shown, cli.Ago(now, it.Ready), cli.ClockTime(now, it.Ready))
	case "reserved":
		say("state", "%s for %s, %s left", shown, cli.Word(rec.Owner), cli.Short(rec.Deadline.Sub(now)))
	case "running":
		say("state", "%s, %s left without a heartbeat", shown, cli.Short(rec.Deadline.Sub(now)))
	case "lapsed":
		say("state", "%s %s: its owner was not heard of in time; croft work reconcile requeues it", shown,
			cli.Ago(now, rec.Deadline))
	default:
		say("state", "%s %s, at %s", shown, cli.Ago(now, it.Finished), cli.ClockTime(now, it.Finished))
	}
	say("attempts", "%d of %d", it.Attempts, it.Limit)
	if it.Priority != 0 {
		say("priority", "%d", it.Priority)
	}
	if it.Generation != 0 {
		say("generation", "%d", it.Generation)
	}
	for i, target := range it.Guards {
		name := ""
		if i == 0 {
			name = "guards"
		}
		say(name, "%s", cli.Word(store.Redact(target)))
	}
	say("added", "%s, at %s", cli.Ago(now, it.Created), cli.ClockTime(now, it.Created))
	if it.State == work.Running {
		say("owner", "%s, for %s, token %d", cli.Word(rec.Owner), cli.Short(max(now.Sub(rec.Acquired), 0)), rec.Token)
		say("heartbeat", "%s", cli.Ago(now, it.Heartbeat()))
		if rec.Progress != "" {
			say("progress", "%s, %s", cli.Line(rec.Progress), cli.Ago(now, rec.ProgressAt))
		} else {
			say("progress", "none reported since the claim, %s", cli.Ago(now, rec.Acquired))
		}
	}
	if it.Error != "" {
		say("error", "%s", cli.Line(it.Error))
	}
	for _, part := range []struct {
		name string
		data []byte
	}{{"payload", it.Payload}, {"checkpoint", it.Checkpoint}, {"result", it.Result}} {
		if len(part.data) > 0 {
			say(part.name, "%s", cli.Excerpt(part.data))
		}
	}
	if len(rec.History) == 0 {
		return
	}
	fmt.Fprintln(a.Stdout)
	t := a.Table("TOKEN", "WHEN", "OWNER", "CAUSE", "FOR", "ENDED", "BY HAND")
	t.Whole = true
	for i := len(rec.History) - 1; i >= 0; i-- {
		t.Row(cli.RowOfTerm(rec, rec.History[i], now)...)
	}
	t.Flush()
}

func (a *app) describeEffects(ctx context.Context, l work.Ledger, id work.ID, now time.Time) error {
	t := a.effectTable()
	for e, err := range l.Effects(ctx, work.EffectQuery{Item: id}) {
		if err != nil {
			return store.Unknown(err)
		}
		t.Row(rowOfEffect(e, now)...)
	}
	if len(t.Rows) > 0 {
		fmt.Fprintln(a.Stdout)
		t.Flush()
	}
	return nil
}
