package workcmd

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func (a *app) workLsCommand() *cobra.Command {
	var states []string
	q := work.Query{Newest: true}
	var limit int
	c := &cobra.Command{
		Use:     "ls [QUEUE]",
		Aliases: []string{"list"},
		Short:   "List items, newest first",
		Long: `List the items of a queue, or of all, newest first. Some items have a finer
state. A running item is lapsed if its owner was not heard of in time, until the
reconciler requeues it. A waiting item is scheduled if its time has not come,
and reserved if it is kept for a named owner.`,
		Example: `  croft work ls
  croft work ls thumbnails --state running
  croft work ls --state dead --limit 0 --json | jq -r .id`,
		Args:              cli.Takes("[QUEUE]"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			for _, s := range states {
				q.States = append(q.States, work.State(s))
			}
			if len(args) > 0 {
				q.Queue = args[0]
				if err := checkQueue(q.Queue); err != nil {
					return err
				}
			}
			if q.Limit = limit; limit < 0 {
				return cli.Invalid("--limit %d: it must not be negative", limit)
			}
			if err := q.Check(); err != nil {
				return err
			}
			return a.workLs(c.Context(), q)
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&states, "state", nil, "only items in this `state`: "+statesText()+"; may be given again")
	_ = c.RegisterFlagCompletionFunc("state",
		cobra.FixedCompletions(strings.Split(statesText(), ", "), cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&q.Owner, "owned-by", "", "only items whose owner, or last owner, is this one")
	limitFlag(flags, &limit)
	return c
}

func statesText() string {
	words := make([]string, len(work.States))
	for i, s := range work.States {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

func (a *app) workLs(ctx context.Context, q work.Query) error {
	return a.withLedger(ctx, func(ctx context.Context, l work.Ledger, now time.Time) error {
		items := listing[work.Item]{
			table: a.Table("ID", "QUEUE", "STATE", "TRY", "WHEN", "OWNER", "NOTE"), none: "such items",
			row:  func(it work.Item) []cli.Cell { return rowOfItem(it, now) },
			view: func(it work.Item) any { return rowViewOf(it, now) },
		}
		return items.show(a, q.Limit, func(limit int) iter.Seq2[work.Item, error] {
			q.Limit = limit
			return l.List(ctx, q)
		})
	})
}

// itemState is an item's state in one word for people, and its colour.
func itemState(it work.Item, now time.Time) (string, cli.Colour) {
	switch it.State {
	case work.Waiting:
		switch {
		case it.Record.State == tenure.Reserved && now.Before(it.Record.Deadline):
			return "reserved", cli.Yellow
		case it.Ready.After(now):
			return "scheduled", cli.Faint
		}
		return "waiting", cli.Uncoloured
	case work.Running:
		if it.Lapsed(now) {
			return "lapsed", cli.Red
		}
		return "running", cli.Green
	case work.Dead:
		return "dead", cli.Red
	}
	return string(it.State), cli.Faint
}

func rowOfItem(it work.Item, now time.Time) []cli.Cell {
	state, colour := itemState(it, now)
	at, note := it.Finished, cli.Line(it.Error)
	switch state {
	case "waiting", "scheduled":
		at = it.Ready
	case "reserved":
		at, note = it.Record.Deadline, cli.Line(it.Record.Note)
	case "running", "lapsed":
		at, note = it.Record.Acquired, ""
		if it.Record.Progress != "" {
			note = fmt.Sprintf("%s (%s)", cli.Line(it.Record.Progress), cli.Ago(now, it.Record.ProgressAt))
		}
	case "cancelled":
		note = cli.Line(it.Record.Note)
	}
	owner := it.Record.Owner
	if state == "waiting" || state == "scheduled" {
		owner = ""
	}
	return []cli.Cell{
		cli.PlainCell(string(it.ID)),
		cli.PlainCell(cli.Word(it.Queue)),
		{Text: state, Colour: colour},
		cli.PlainCell(fmt.Sprintf("%d/%d", it.Attempts, it.Limit)),
		cli.PlainCell(cli.Ago(now, at)),
		cli.PlainCell(cli.Word(owner)),
		cli.PlainCell(firstLine(note)),
	}
}

// firstLine cuts a text so that it fits a table.
func firstLine(s string) string { return cli.Cut(s, 200) }
