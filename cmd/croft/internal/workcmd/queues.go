package workcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// ruleView is a rule in JSON. The names are those of the server's API.
type ruleView struct {
	Queue     string   `json:"queue"`
	Partition string   `json:"partition"`
	Paused    bool     `json:"paused"`
	Running   int      `json:"running"`
	Starts    int      `json:"starts"`
	Interval  string   `json:"interval"`
	Actor     string   `json:"actor"`
	Note      string   `json:"note"`
	Changed   cli.When `json:"changed"`
}

func ruleViewOf(r work.Rule) ruleView {
	v := ruleView{
		Queue: r.Queue, Partition: r.Partition, Paused: r.Paused, Running: r.Running, Starts: r.Starts,
		Actor: r.Actor, Note: r.Note, Changed: cli.When(r.Changed),
	}
	if r.Interval > 0 {
		v.Interval = r.Interval.String()
	}
	return v
}

// ruleText says in words how a rule restricts claims.
func ruleText(r work.Rule) string {
	var all []string
	if r.Paused {
		all = append(all, "paused")
	}
	if r.Running > 0 {
		all = append(all, fmt.Sprintf("at most %d run", r.Running))
	}
	if r.Starts > 0 {
		all = append(all, fmt.Sprintf("at most %d start in %s", r.Starts, cli.Short(r.Interval)))
	}
	if len(all) == 0 {
		return "open"
	}
	return strings.Join(all, ", ")
}

// ruleName names what a rule is about.
func ruleName(r work.Rule) string {
	switch r.Partition {
	case "":
		return cli.Word(r.Queue)
	case work.EachPartition:
		return cli.Word(r.Queue) + ", each partition"
	}
	return cli.Word(r.Queue) + ", partition " + cli.Word(r.Partition)
}

func partitionFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "partition", "", "only this `part` of the queue: see croft work add")
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
  croft work pause mails --partition tenant-42 --note "they asked us to wait"
  croft work queues
  croft work resume thumbnails --note "resizer 2.1 is out"`,
		Args:              cli.Takes("QUEUE"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			change.Queue = args[0]
			return a.govern(c.Context(), change)
		},
	}
	partitionFlag(c, &change.Partition)
	cli.NoteFlag(c, &change.Note)
	return c
}

func (a *app) workResumeCommand() *cobra.Command {
	change := work.RuleChange{Verb: work.Resume}
	c := &cobra.Command{
		Use:   "resume QUEUE --note WHY",
		Short: "Let workers claim from a paused queue again",
		Long: `Let workers claim from a paused queue again. Workers that wait for it are woken.
Limits stay as they are.`,
		Example:           `  croft work resume thumbnails --note "resizer 2.1 is out"`,
		Args:              cli.Takes("QUEUE"),
		ValidArgsFunction: a.completeRuled,
		RunE: func(c *cobra.Command, args []string) error {
			change.Queue = args[0]
			return a.govern(c.Context(), change)
		},
	}
	partitionFlag(c, &change.Partition)
	cli.NoteFlag(c, &change.Note)
	return c
}

func (a *app) workLimitCommand() *cobra.Command {
	change := work.RuleChange{Verb: work.SetLimit}
	var none bool
	c := &cobra.Command{
		Use:   "limit QUEUE {--running N | --starts M --in INTERVAL | --none} --note WHY",
		Short: "Bound what runs of a queue, and what starts",
		Long: `Bound how many items of a queue run at the same time, and how many start in any
period of the length INTERVAL. The limit holds at every instant, for all workers
on all machines together. It replaces the limit before; --none lifts it. Items
that run already go on, and count.

With --partition the limit is that of one part of the queue. With --partition '*'
it is that of every partition which has no rule of its own. A limit of the queue
holds for all of its items together, besides.

An item whose worker has died runs until it is requeued. An item that an operator
takes over counts, and may exceed the limit. Croft counts starts by hundredths of
the interval, so a start may be late by as much, and never early.

Claims from a queue with a limit go one after the other in the database.`,
		Example: `  croft work limit mails --running 20 --note "the relay takes 20 connections"
  croft work limit api-calls --starts 100 --in 1m --note "their rate limit"
  croft work limit mails --partition '*' --running 2 --note "no tenant takes all slots"
  croft work limit mails --partition tenant-42 --running 10 --note "they pay for it"
  croft work limit mails --none --note "the relay was replaced"`,
		Args:              cli.Takes("QUEUE"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			change.Queue = args[0]
			switch {
			case none == (change.Limit != work.Limit{}):
				return &cli.UsageError{
					Message: "no limit given, or both a limit and --none",
					Hint:    "give --running N, or --starts M with --in INTERVAL, or --none",
				}
			case (change.Limit.Starts != 0) != (change.Limit.Interval != 0):
				return &cli.UsageError{
					Message: "--starts and --in go together",
					Hint:    "as in --starts 100 --in 1m",
				}
			}
			return a.govern(c.Context(), change)
		},
	}
	flags := c.Flags()
	flags.IntVar(&change.Limit.Running, "running", 0, "how many may run at the same time")
	flags.IntVar(&change.Limit.Starts, "starts", 0, "how many may start within --in")
	flags.Var(&cli.Duration{
		Value: &change.Limit.Interval, Least: work.MinInterval, Most: work.MaxDelay, Examples: "1s or 1m",
	}, "in", "the interval of --starts")
	flags.BoolVar(&none, "none", false, "lift the limit")
	partitionFlag(c, &change.Partition)
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
		fmt.Fprintf(a.Stdout, "%s: %s\n", ruleName(rule), ruleText(rule))
		return nil
	}
}

func (a *app) workQueuesCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "queues [QUEUE]",
		Short: "List how queues hand out their items, and who said so",
		Long: `List the queues, and partitions of queues, whose items are not simply handed out,
or were not for a time: what is paused, which limits there are, and who said so
last, when and why. The partition * stands for every partition without a rule of
its own. "croft work stats" counts the items of all queues.`,
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
					table: a.Table("QUEUE", "PARTITION", "STATE", "CHANGED", "BY", "NOTE"), none: "queues with rules",
					row: func(r work.Rule) []cli.Cell {
						state := cli.PlainCell(ruleText(r))
						if r.Restricts() {
							state.Colour = cli.Yellow
						}
						return []cli.Cell{
							cli.PlainCell(cli.Word(r.Queue)), cli.PlainCell(partitionText(r.Partition)), state,
							cli.PlainCell(cli.Ago(now, r.Changed)),
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

// partitionText is a partition in a table.
func partitionText(name string) string {
	switch name {
	case "":
		return "-"
	case work.EachPartition:
		return name
	}
	return cli.Word(name)
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
			if cli.Completable(r.Queue) && r.Partition == "" {
				queues = append(queues, cobra.CompletionWithDesc(r.Queue, ruleText(r)))
			}
		}
		return queues
	}), cobra.ShellCompDirectiveNoFileComp
}
