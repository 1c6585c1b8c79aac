package workcmd

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// statsView is a queue in JSON. The names are those of work.Stats.
type statsView struct {
	Queue     string   `json:"queue"`
	Ready     int64    `json:"ready"`
	Scheduled int64    `json:"scheduled"`
	Running   int64    `json:"running"`
	Lapsed    int64    `json:"lapsed"`
	Done      int64    `json:"done"`
	Dead      int64    `json:"dead"`
	Cancelled int64    `json:"cancelled"`
	Oldest    cli.When `json:"oldest"`
	Heartbeat cli.When `json:"heartbeat"`
	Progress  cli.When `json:"progress"`
	Pending   int64    `json:"effects_pending"`
	Sent      int64    `json:"effects_sent"`
	Failed    int64    `json:"effects_failed"`
	Unknown   int64    `json:"effects_unknown"`
	Refusals  int64    `json:"refusals"`
}

func (a *app) workStatsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats [QUEUE]",
		Short: "Count items, effects and refusals by queue",
		Long: `Count what the ledger holds, by queue. OLDEST is how long the oldest ready item
has waited. HEARTBEAT and PROGRESS are the oldest of all running items. An old
heartbeat means a dead worker. An old progress with a young heartbeat means a
worker that is alive and does not advance.`,
		Example:           "  croft work stats\n  croft work stats thumbnails --json | jq .ready",
		Args:              cli.Takes("[QUEUE]"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			queue := ""
			if len(args) > 0 {
				queue = args[0]
				if err := checkQueue(queue); err != nil {
					return err
				}
			}
			return a.withLedger(c.Context(), func(ctx context.Context, l work.Ledger, now time.Time) error {
				stats, err := l.Stats(ctx, queue)
				if err != nil {
					return store.Unknown(err)
				}
				a.printStats(stats, now)
				return nil
			})
		},
	}
}

func (a *app) printStats(stats []work.Stats, now time.Time) {
	t := a.Table("QUEUE", "READY", "SCHEDULED", "RUNNING", "LAPSED", "DONE", "DEAD", "CANCELLED", "OLDEST",
		"HEARTBEAT", "PROGRESS", "EFFECTS", "REFUSALS")
	t.Whole = true
	count := func(n int64, c cli.Colour) cli.Cell {
		if n == 0 {
			c = cli.Uncoloured
		}
		return cli.Cell{Text: strconv.FormatInt(n, 10), Colour: c}
	}
	since := func(at time.Time) cli.Cell {
		if at.IsZero() {
			return cli.PlainCell("-")
		}
		return cli.PlainCell(cli.Short(max(now.Sub(at), 0)))
	}
	for _, s := range stats {
		if a.JSON {
			a.Print(statsView{
				s.Queue, s.Ready, s.Scheduled, s.Running, s.Lapsed, s.Done, s.Dead, s.Cancelled, cli.When(s.Oldest),
				cli.When(s.Heartbeat), cli.When(s.Progress),
				s.Pending, s.Sent, s.Failed, s.Unknown, s.Refusals,
			})
			continue
		}
		effects := "-"
		if s.Pending+s.Sent+s.Failed+s.Unknown > 0 {
			effects = fmt.Sprintf("%d sent", s.Sent)
			for _, e := range []struct {
				n    int64
				what string
			}{{s.Pending, "pending"}, {s.Unknown, "unknown"}, {s.Failed, "failed"}} {
				if e.n > 0 {
					effects += fmt.Sprintf(", %d %s", e.n, e.what)
				}
			}
		}
		t.Row(cli.PlainCell(cli.Word(s.Queue)), count(s.Ready, cli.Uncoloured), count(s.Scheduled, cli.Uncoloured),
			count(s.Running, cli.Green), count(s.Lapsed, cli.Red), count(s.Done, cli.Uncoloured),
			count(s.Dead, cli.Red), count(s.Cancelled, cli.Uncoloured), since(s.Oldest), since(s.Heartbeat),
			since(s.Progress),
			cli.PlainCell(effects), count(s.Refusals, cli.Yellow))
	}
	switch {
	case a.JSON:
	case len(t.Rows) == 0:
		fmt.Fprintln(a.Stderr, "croft: the ledger has no such items")
	default:
		t.Flush()
	}
}

// workRefusalView is a refusal in JSON. The names are those of work.Refusal.
type workRefusalView struct {
	At             cli.When    `json:"at"`
	Item           work.ID     `json:"item"`
	Queue          string      `json:"queue"`
	Verb           work.Verb   `json:"verb"`
	Why            string      `json:"why"`
	Presented      fence.Token `json:"presented"`
	PresentedGrant fence.Grant `json:"presented_grant"`
	PresentedOwner string      `json:"presented_owner"`
	Newest         fence.Token `json:"newest"`
	NewestGrant    fence.Grant `json:"newest_grant"`
	NewestOwner    string      `json:"newest_owner"`
}

func refusalViewOf(r work.Refusal) workRefusalView {
	return workRefusalView{
		cli.When(r.At), r.Item, r.Queue, r.Verb, r.Why, r.Presented, r.PresentedGrant, r.PresentedOwner, r.Newest,
		r.NewestGrant, r.NewestOwner,
	}
}

func (a *app) workRefusalsCommand() *cobra.Command {
	var item string
	var since time.Duration
	var limit int
	c := &cobra.Command{
		Use:   "refusals [QUEUE]",
		Short: "List the writes that did not count, newest first",
		Long: `List the writes that did not count: who tried what, with which token, and whose
token was newer. Each is damage that did not happen. WHY is stale or collision.
A collision is a token that this ledger never issued to that owner: some store
or ledger has lost its memory.`,
		Example: `  croft work refusals
  croft work refusals thumbnails --since 1h
  croft work refusals --item 0198c0de00007000800000000000cafe --json`,
		Args:              cli.Takes("[QUEUE]"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			var q work.RefusalQuery
			if len(args) > 0 {
				q.Queue = args[0]
			}
			if limit < 0 {
				return cli.Invalid("--limit %d: it must not be negative", limit)
			}
			if item != "" {
				if err := checkIDs(item); err != nil {
					return err
				}
			}
			if err := q.Check(); err != nil {
				return err
			}
			return a.workRefusals(c.Context(), item, q, since, limit)
		},
	}
	c.Flags().StringVar(&item, "item", "", "only of the item with this `id`, or with an id that begins so")
	_ = c.RegisterFlagCompletionFunc("item", a.completeItems())
	cli.SpanFlag(c.Flags(), &since, "since", "only refusals of this last period, as in 24h")
	limitFlag(c.Flags(), &limit)
	return c
}

func (a *app) workRefusals(
	ctx context.Context, item string, q work.RefusalQuery, since time.Duration, limit int,
) error {
	return a.withLedger(ctx, func(ctx context.Context, l work.Ledger, now time.Time) error {
		if item != "" {
			ids, err := a.itemIDs(ctx, l, item)
			if err != nil {
				return err
			}
			q.Item = ids[0]
		}
		if since > 0 {
			q.Since = now.Add(-since)
		}
		refusals := listing[work.Refusal]{
			table: a.Table("WHEN", "ITEM", "QUEUE", "WHAT", "WHY", "TOKEN", "BY", "NEWEST", "OWNER"), none: "refusals",
			row: func(r work.Refusal) []cli.Cell {
				return []cli.Cell{
					cli.PlainCell(cli.Ago(now, r.At)), cli.PlainCell(cli.Word(string(r.Item))),
					cli.PlainCell(cli.Word(r.Queue)),
					cli.PlainCell(string(r.Verb)),
					{Text: r.Why, Colour: cli.Yellow},
					cli.PlainCell(strconv.FormatInt(int64(r.Presented), 10)), cli.PlainCell(cli.Word(r.PresentedOwner)),
					cli.PlainCell(strconv.FormatInt(int64(r.Newest), 10)), cli.PlainCell(cli.Word(r.NewestOwner)),
				}
			},
			view: func(r work.Refusal) any { return refusalViewOf(r) },
		}
		return refusals.show(a, limit, func(limit int) iter.Seq2[work.Refusal, error] {
			q.Limit = limit
			return l.Refusals(ctx, q)
		})
	})
}
