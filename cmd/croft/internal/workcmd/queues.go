package workcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// ruleView is a rule in JSON. The names are those of work.Rule.
type ruleView struct {
	Queue   string   `json:"queue"`
	Paused  bool     `json:"paused"`
	Actor   string   `json:"actor"`
	Note    string   `json:"note"`
	Changed cli.When `json:"changed"`
}

func ruleViewOf(r work.Rule) ruleView {
	return ruleView{r.Queue, r.Paused, r.Actor, r.Note, cli.When(r.Changed)}
}

// ruleText says in words how a rule restricts claims.
func ruleText(r work.Rule) string {
	if r.Paused {
		return "paused"
	}
	return "open"
}

func (a *app) workPauseCommand() *cobra.Command {
	change := work.RuleChange{Verb: work.Pause}
	c := &cobra.Command{
		Use:   "pause QUEUE --note WHY",
		Short: "Let nobody claim from a queue",
		Long: `Let nobody claim from a queue, until "croft work resume". Claims find nothing
there, on every machine, from the moment this command returns. Items that run go
on: their owners report and complete as before. Items can still be added.

The ledger keeps who paused the queue, when and why: "croft work queues" and
"croft status" show it.`,
		Example: `  croft work pause thumbnails --note "the resizer corrupts PNGs"
  croft work queues
  croft work resume thumbnails --note "resizer 2.1 is out"`,
		Args:              cli.Takes("QUEUE"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			change.Queue = args[0]
			return a.govern(c.Context(), change)
		},
	}
	cli.NoteFlag(c, &change.Note)
	return c
}

func (a *app) workResumeCommand() *cobra.Command {
	change := work.RuleChange{Verb: work.Resume}
	c := &cobra.Command{
		Use:               "resume QUEUE --note WHY",
		Short:             "Let workers claim from a paused queue again",
		Long:              "Let workers claim from a paused queue again. Workers that wait for it are woken.",
		Example:           `  croft work resume thumbnails --note "resizer 2.1 is out"`,
		Args:              cli.Takes("QUEUE"),
		ValidArgsFunction: a.completeRuled,
		RunE: func(c *cobra.Command, args []string) error {
			change.Queue = args[0]
			return a.govern(c.Context(), change)
		},
	}
	cli.NoteFlag(c, &change.Note)
	return c
}

// govern changes a rule and prints it. It asks again while the outcome is
// unknown, which is safe, until twice the timeout has passed.
func (a *app) govern(ctx context.Context, change work.RuleChange) error {
	change.Actor = a.Actor()
	if err := change.Check(); err != nil {
		return err
	}
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	stop := a.AskOnTerminal()
	defer stop()
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		call, done := context.WithTimeout(ctx, a.Timeout)
		rule, err := l.Govern(call, change)
		done()
		if errors.Is(err, work.ErrUnknown) && !store.IsFault(err) && clock.Sleep(ctx, pause) == nil {
			continue
		}
		if err != nil {
			return err
		}
		if a.JSON {
			a.Print(ruleViewOf(rule))
			return nil
		}
		fmt.Fprintf(a.Stdout, "%s: %s\n", cli.Word(rule.Queue), ruleText(rule))
		return nil
	}
}

func (a *app) workQueuesCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "queues [QUEUE]",
		Short: "List how queues hand out their items, and who said so",
		Long: `List the queues whose items are not simply handed out, or were not for a time:
who paused or resumed each of them last, when and why. "croft work stats" counts
the items of all queues.`,
		Example:           "  croft work queues\n  croft work queues --json | jq -r 'select(.paused).queue'",
		Args:              cli.Takes("[QUEUE]"),
		ValidArgsFunction: a.completeRuled,
		RunE: func(c *cobra.Command, args []string) error {
			var q work.RuleQuery
			if len(args) > 0 {
				if q.Queue = args[0]; q.Queue == "" {
					return checkQueue(q.Queue)
				}
			}
			if limit < 0 {
				return cli.Invalid("--limit %d: it must not be negative", limit)
			}
			if err := q.Check(); err != nil {
				return err
			}
			return a.withLedger(c.Context(), func(ctx context.Context, l work.Ledger, now time.Time) error {
				rules := listing[work.Rule]{
					table: a.Table("QUEUE", "STATE", "CHANGED", "BY", "NOTE"), none: "queues with rules",
					row: func(r work.Rule) []cli.Cell {
						state := cli.PlainCell(ruleText(r))
						if r.Restricts() {
							state.Colour = cli.Yellow
						}
						return []cli.Cell{
							cli.PlainCell(cli.Word(r.Queue)), state, cli.PlainCell(cli.Ago(now, r.Changed)),
							cli.PlainCell(cli.Word(r.Actor)), cli.PlainCell(cli.Line(r.Note)),
						}
					},
					view: func(r work.Rule) any { return ruleViewOf(r) },
				}
				return rules.show(a, limit, func(limit int) iter.Seq2[work.Rule, error] {
					q.Limit = limit
					return l.Rules(ctx, q)
				})
			})
		},
	}
	limitFlag(c.Flags(), &limit)
	return c
}

// completeRuled completes the first argument with the queues that have rules.
func (a *app) completeRuled(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completed(c, func(ctx context.Context, l work.Ledger) []string {
		var queues []string
		for r, err := range l.Rules(ctx, work.RuleQuery{Limit: cli.CompletionKeys}) {
			if err != nil {
				break
			}
			if cli.Completable(r.Queue) {
				queues = append(queues, cobra.CompletionWithDesc(r.Queue, ruleText(r)))
			}
		}
		return queues
	}), cobra.ShellCompDirectiveNoFileComp
}
