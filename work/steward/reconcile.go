package steward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	croft "github.com/croft-dev/croft"
	"github.com/croft-dev/croft/internal/identity"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// ReconcileOptions shape the reconciler. A nil *ReconcileOptions and the zero ReconcileOptions are the defaults.
type ReconcileOptions struct {
	// Queue is the only queue to look at. Default: all.
	Queue string
	// StallAfter is how long an item may be alive without progress before it is flagged. Default: 15 minutes.
	StallAfter time.Duration
	// Deliveries is how often an effect is delivered before it is left to an operator. Default: DefaultDeliveries.
	Deliveries int
	// Retention is how long what is over is remembered. Default: work.DefaultRetention. NoPrune leaves it all.
	Retention work.Retention
	NoPrune   bool
	// PruneLimit is how much one pass forgets at most. Default: 1000.
	PruneLimit int
	// DryRun only tells what would be done.
	DryRun bool
	// Owner and Instance are who requeues. Default: user@host, and one that is unique.
	Owner, Instance string
	// Interval is the time between two passes of RunReconciler. Default: 5 seconds. Key is what its lease is on, and TTL how long a replica that died in a pass keeps the others waiting. Default: "work/reconciler", 1 minute or twice the interval.
	Interval time.Duration
	Key      string
	TTL      time.Duration
	// Logger receives every action, under names that stay as they are. Default: nothing is logged.
	Logger *slog.Logger
	// Observe is called for every action that was done, or in a dry run would be, and Passed after every pass. Default: nothing is called.
	Observe func(Action)
	Passed  func(Report, error)
}

func (o *ReconcileOptions) filled() ReconcileOptions {
	var f ReconcileOptions
	if o != nil {
		f = *o
	}
	f.StallAfter, f.Interval = cmp.Or(f.StallAfter, 15*time.Minute), cmp.Or(f.Interval, 5*time.Second)
	f.Deliveries, f.PruneLimit = cmp.Or(f.Deliveries, DefaultDeliveries), cmp.Or(f.PruneLimit, 1000)
	f.Owner, f.Instance, f.Key = cmp.Or(f.Owner, "reconciler@"+identity.Owner()), cmp.Or(f.Instance, identity.Instance()), cmp.Or(f.Key, "work/reconciler")
	f.TTL = cmp.Or(f.TTL, max(time.Minute, 2*f.Interval))
	if len(f.Owner) > tenure.MaxName {
		f.Owner = "reconciler"
	}
	return f
}

// Report is what one pass did, or in a dry run would have done.
type Report struct {
	DryRun   bool     `json:"dry_run,omitempty"`
	Actions  []Action `json:"-"`
	Running  int      `json:"running"` // items looked at
	Requeued int      `json:"requeued"`
	Buried   int      `json:"buried"`
	Stalled  int      `json:"stalled"`
	// Recovered counts effects, Doubtful those that wait for an operator.
	Recovered int         `json:"recovered"`
	Doubtful  int         `json:"doubtful"`
	Pruned    work.Pruned `json:"pruned"`
	// Overtaken counts what was no longer so when it was to be done: its owner was heard of, or another was faster.
	Overtaken int `json:"overtaken"`
}

// RunReconciler reconciles again and again until ctx ends: in every interval one of all replicas that call it does, under a lease of the client. A pass that fails is an event of the client, and is tried again.
func RunReconciler(ctx context.Context, c *croft.Client, l work.Ledger, o *ReconcileOptions) error {
	f := o.filled()
	return c.Loop(ctx, f.Key, f.Interval, &croft.LeaseOptions{TTL: f.TTL}, func(ctx context.Context, lease *croft.Lease) error {
		r, err := Reconcile(ctx, l, &f)
		if f.Passed != nil {
			f.Passed(r, err)
		}
		if err != nil {
			return err
		}
		if err := lease.Report(ctx, r.String()); err != nil && ctx.Err() == nil {
			return err
		}
		return nil // ctx has ended, but the pass is done: the next is due in an interval
	})
}

// Reconcile is one pass. It returns what it did also with an error.
func Reconcile(ctx context.Context, l work.Ledger, o *ReconcileOptions) (Report, error) {
	f := o.filled()
	r := Report{DryRun: f.DryRun}
	var items []work.Item
	var unread error // one item that cannot be read must not keep all others from being requeued
	for it, err := range l.List(ctx, work.Query{Queue: f.Queue, States: []work.State{work.Running}}) {
		if err != nil {
			unread = fmt.Errorf("reading what runs: %w", err)
			break
		}
		items = append(items, it)
	}
	if unread != nil && len(items) == 0 {
		return r, unread
	}
	var orphans []work.Effect
	for e, err := range l.Effects(ctx, work.EffectQuery{Queue: f.Queue, Orphaned: true}) {
		if err != nil {
			return r, fmt.Errorf("reading orphaned effects: %w", err)
		}
		orphans = append(orphans, e)
	}
	now, err := l.Now(ctx)
	if err != nil {
		return r, err
	}
	r.Running = len(items)
	err = errors.Join(unread, r.carryOut(ctx, l, plan(items, orphans, now, f), f))
	if f.NoPrune || f.Queue != "" { // retention is of the whole ledger
		return r, err
	}
	return r, errors.Join(err, r.prune(ctx, l, now, f))
}

// mostAtOnce is how many requests go in one call.
const mostAtOnce = 500

// carryOut does what was planned, in as few calls as possible, and counts what was done.
func (r *Report) carryOut(ctx context.Context, l work.Ledger, actions []Action, f ReconcileOptions) error {
	var requests []work.Request
	var settlements []work.Settlement
	var of, ofEffects []Action
	for _, a := range actions {
		switch {
		case !a.Kind.changes() || f.DryRun:
			r.done(a, f)
		case a.Kind == Recovered:
			ofEffects = append(ofEffects, a)
			settlements = append(settlements, work.Settlement{
				Effect: a.effect.EffectID, Attempt: a.effect.Attempts, State: work.Pending, Error: a.effect.Error,
				Actor: f.Owner, Note: a.Why,
			})
		default:
			of = append(of, a)
			requests = append(requests, work.Request{
				Verb: work.Requeue, ID: a.Item, Token: a.item.Record.Token, Secret: tenure.NewSecret(), Owner: f.Owner, Instance: f.Instance,
			})
		}
	}
	var failed error
	for begin := 0; begin < len(requests); begin += mostAtOnce {
		end := min(begin+mostAtOnce, len(requests))
		for i, answer := range l.Apply(ctx, requests[begin:end]) {
			failed = errors.Join(failed, r.answered(of[begin+i], answer.Err, f))
		}
	}
	for begin := 0; begin < len(settlements); begin += mostAtOnce {
		end := min(begin+mostAtOnce, len(settlements))
		for i, answer := range l.Settle(ctx, settlements[begin:end]) {
			failed = errors.Join(failed, r.answered(ofEffects[begin+i], answer.Err, f))
		}
	}
	return failed
}

// answered counts an action by what the ledger said to it.
func (r *Report) answered(a Action, err error, f ReconcileOptions) error {
	switch {
	case err == nil:
		r.done(a, f)
	case errors.Is(err, work.ErrStale), errors.Is(err, work.ErrState), errors.Is(err, work.ErrNotFound):
		r.Overtaken++
	default:
		return fmt.Errorf("%s: %w", a.Kind, err)
	}
	return nil
}

// done counts, logs and shows an action.
func (r *Report) done(a Action, f ReconcileOptions) {
	r.Actions = append(r.Actions, a)
	switch a.Kind {
	case Requeued:
		r.Requeued++
	case Buried:
		r.Buried++
	case Stalled:
		r.Stalled++
	case Recovered:
		r.Recovered++
	case Doubtful:
		r.Doubtful++
	}
	if f.Observe != nil {
		f.Observe(a)
	}
	if f.Logger == nil {
		return
	}
	level := slog.LevelInfo
	if a.Kind == Buried || a.Kind == Stalled || a.Kind == Doubtful {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("why", a.Why)}
	for _, f := range []struct{ name, text string }{{"queue", a.Queue}, {"item", string(a.Item)}, {"effect", a.Effect}, {"owner", a.Owner}} {
		if f.text != "" {
			attrs = append(attrs, slog.String(f.name, f.text))
		}
	}
	if f.DryRun {
		attrs = append(attrs, slog.Bool("dry_run", true))
	}
	f.Logger.LogAttrs(context.Background(), level, string(a.Kind), attrs...)
}

// prune forgets what is over, or counts it.
func (r *Report) prune(ctx context.Context, l work.Ledger, now time.Time, f ReconcileOptions) error {
	var err error
	if f.DryRun {
		r.Pruned, err = prunable(ctx, l, now, f)
	} else {
		r.Pruned, err = l.Prune(ctx, f.Retention, f.PruneLimit)
	}
	if n := r.Pruned.Items + r.Pruned.Refusals; n > 0 {
		r.done(Action{Kind: Pruned, Count: n, Why: fmt.Sprintf("%d items and %d refusals are older than their retention", r.Pruned.Items, r.Pruned.Refusals)}, f)
	}
	if err != nil {
		return fmt.Errorf("pruning: %w", err)
	}
	return nil
}

// prunable counts what a pass would forget.
func prunable(ctx context.Context, l work.Ledger, now time.Time, f ReconcileOptions) (work.Pruned, error) {
	var n work.Pruned
	retention, err := f.Retention.Filled()
	if err != nil {
		return n, err
	}
	for it, err := range l.List(ctx, work.Query{States: []work.State{work.Done, work.Dead, work.Cancelled}}) {
		if err != nil {
			return n, err
		}
		if n.Items == f.PruneLimit {
			break
		}
		if !retention.Forgets(it, now) {
			continue
		}
		kept := false
		for e, err := range l.Effects(ctx, work.EffectQuery{Item: it.ID}) {
			if err != nil {
				return n, err
			}
			kept = kept || e.Keeps()
		}
		if !kept {
			n.Items++
		}
	}
	for refusal, err := range l.Refusals(ctx, work.RefusalQuery{}) {
		if err != nil {
			return n, err
		}
		if n.Refusals < f.PruneLimit && !refusal.At.After(work.Cutoff(now, retention.Refusals)) {
			n.Refusals++
		}
	}
	return n, nil
}

// String is the report in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d running, %d requeued, %d buried, %d stalled, %d effects recovered, %d doubtful, %d items and %d refusals pruned, %d overtaken",
		r.Running, r.Requeued, r.Buried, r.Stalled, r.Recovered, r.Doubtful, r.Pruned.Items, r.Pruned.Refusals, r.Overtaken)
}
