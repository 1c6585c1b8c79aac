package workcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/observe"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

func (a *app) workReconcileCommand() *cobra.Command {
	var o steward.ReconcileOptions
	var every time.Duration
	var raise []string
	var metrics string
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Requeue items that lost their worker, bury used-up ones, prune old ones",
		Long: `Look at everything that runs, once, and put it in order:

  requeued   an item's owner was not heard of in time: the item waits again
  buried     the same, but its attempts were used up: the item is dead
  stalled    an item is alive and has reported no progress for --stall-after:
             nothing is done, somebody should look
  recovered  an effect's dispatcher died: the effect is pending again
  doubtful   nobody knows whether an effect was delivered, and it must not be
             sent twice: settle it by hand
  unserved   effects for a destination have been due for 5 minutes: see that a
             dispatcher delivers to it
  pruned     items and refusals older than their retention are forgotten; an
             item with a pending or unknown effect is kept

Every change is a compare and swap on the token that was read. So it takes
nothing from an owner that is heard of meanwhile. With --every it goes on until
interrupted, under a lease: of several such reconcilers one works at a time.
--dry-run only says what would be done.

Croft raises the fence at the guards of the items that it requeues or buries, so
they refuse the old owner at once. If it cannot, it says where and why.

` + cli.RaiseHelp + `

"croft work run" does this too, all but the pruning, unless --no-reconcile is
given.`,
		Example: `  croft work reconcile --dry-run
  croft work reconcile --every 5s --keep-done 48h
  croft work reconcile --queue thumbnails --json`,
		Args: cli.Takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := (work.Query{Queue: o.Queue}).Check(); err != nil {
				return err
			}
			var err error
			if o.Raise, err = a.AllowRaise(raise); err != nil {
				return err
			}
			if c.Flags().Changed("every") {
				if o.DryRun {
					return &cli.UsageError{
						Message: "--every and --dry-run do not go together",
						Hint:    "leave one of them out",
					}
				}
				o.Interval = every
				return a.workReconcileLoop(c.Context(), o, metrics)
			}
			if metrics != "" {
				return &cli.UsageError{
					Message: "--metrics needs --every: one pass is over before anybody reads them",
					Hint:    "add --every 5s, or leave --metrics out",
				}
			}
			return a.workReconcile(c.Context(), o)
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.Queue, "queue", "", "look only at this queue, and prune nothing")
	_ = c.RegisterFlagCompletionFunc("queue", a.completeQueues)
	flags.BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	flags.Var(&cli.Duration{Value: &every, Least: 100 * time.Millisecond, Most: 24 * time.Hour, Examples: "5s or 1m"},
		"every", "go on, and wait this long between two passes")
	cli.SpanFlag(flags, &o.StallAfter, "stall-after", "how long an item may be alive without progress (default 15m)")
	flags.BoolVar(&o.NoPrune, "no-prune", false, "forget nothing")
	keepFlag(flags, &o.Retention.Done, "keep-done", "how long done and cancelled items are remembered (default 168h)")
	keepFlag(flags, &o.Retention.Dead, "keep-dead", "how long dead items are remembered (default 720h)")
	cli.RaiseFlag(c, &raise)
	keepFlag(flags, &o.Retention.Refusals, "keep-refusals", "how long refusals are remembered (default 720h)")
	metricsFlag(c, &metrics)
	return c
}

// keepFlag defines how long something is remembered: a duration or "forever".
func keepFlag(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flags.Var(&cli.Duration{
		Value: value, Least: time.Second, Most: 10 * tenure.MaxPeriod, Forever: true,
		Examples: "48h, or forever",
	}, name, usage+", or \"forever\"")
}

// ledgerRetention replaces croft.Forever, the flags' value of "forever", by the
// ledger's work.Never.
func ledgerRetention(r work.Retention) work.Retention {
	for _, d := range []*time.Duration{&r.Done, &r.Dead, &r.Refusals} {
		if *d == croft.Forever {
			*d = work.Never
		}
	}
	return r
}

// actionView is one action in JSON, done or planned.
type actionView struct {
	steward.Action
	Age    string `json:"age,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (a *app) printAction(dry bool) func(steward.Action) {
	p := a.Palette()
	return func(act steward.Action) {
		if a.JSON {
			v := actionView{Action: act, DryRun: dry}
			if act.Age > 0 {
				v.Age = act.Age.Round(time.Millisecond).String()
			}
			a.Print(v)
			return
		}
		what, colour := act.Effect, cli.Uncoloured
		if what == "" {
			what = string(act.Item)
		}
		if slices.Contains([]steward.ActionKind{
			steward.Buried, steward.Stalled, steward.Doubtful, steward.Unserved,
		}, act.Kind) {
			colour = cli.Yellow
		}
		line := fmt.Sprintf("%s  %s", p.Paint(colour, fmt.Sprintf("%-9s", act.Kind)), cli.Lines(act.Why))
		if what != "" {
			line = fmt.Sprintf("%s  %s of %s: %s", p.Paint(colour, fmt.Sprintf("%-9s", act.Kind)), what,
				cli.Word(act.Queue), cli.Lines(act.Why))
		}
		fmt.Fprintln(a.Stdout, line)
	}
}

func (a *app) workReconcile(ctx context.Context, o steward.ReconcileOptions) error {
	o.Retention, o.Observe, o.Owner = ledgerRetention(o.Retention), a.printAction(o.DryRun), a.Owner
	ctx, cancel := context.WithTimeout(ctx, cli.ListTimeout)
	defer cancel()
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	r, err := steward.Reconcile(ctx, l, &o)
	a.printPass(r)
	return err
}

// printPass prints the sums of a pass.
func (a *app) printPass(r steward.Report) {
	if a.JSON {
		a.Print(r)
		return
	}
	fmt.Fprintln(a.Stdout, r.String())
}

// mostSaid bounds the destinations that a reconciler remembers to have named.
// Others choose their names.
const mostSaid = 1000

func (a *app) workReconcileLoop(ctx context.Context, o steward.ReconcileOptions, where string) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	print, said := a.printAction(false), map[string]time.Time{}
	o.Retention, o.Owner = ledgerRetention(o.Retention), a.Owner
	o.Observe = func(act steward.Action) {
		if act.Kind == steward.Unserved { // it is so in every pass: say it once an hour
			if time.Since(said[act.To]) < time.Hour || len(said) > mostSaid {
				return
			}
			said[act.To] = time.Now()
		}
		print(act)
	}
	o.Passed = func(r steward.Report, err error) {
		switch {
		case errors.Is(err, work.ErrUnfenced):
			fmt.Fprintf(a.Stderr, "croft: %s\n", cli.Lines(a.Redact(err.Error())))
			a.printPass(r)
		case err != nil && ctx.Err() == nil:
			fmt.Fprintf(a.Stderr, "croft: a pass failed and is tried again: %s\n", cli.Lines(a.Redact(err.Error())))
		case len(r.Actions) > r.Unserved:
			a.printPass(r)
		}
	}
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	m, err := a.startMetrics(where, observe.LedgerOptions{StallAfter: o.StallAfter})
	if err != nil {
		return err
	}
	defer m.end()
	l = m.counted(l)
	client, end, err := a.ledgerClient(ctx, m.client())
	if err != nil {
		return err
	}
	defer end()
	return steward.RunReconciler(ctx, client, l, &o) // an interrupt is the normal end
}
