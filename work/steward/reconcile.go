package steward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	croft "github.com/croft-dev/croft"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/identity"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// ReconcileOptions shape the reconciler. A nil *ReconcileOptions and the zero
// ReconcileOptions mean the defaults.
type ReconcileOptions struct {
	// Queue is the only queue to look at. Nothing is pruned then, because the
	// retention is that of the whole ledger. Default: all queues.
	Queue string
	// StallAfter is how long an item may be alive without progress before it is
	// flagged. Default: 15 minutes.
	StallAfter time.Duration
	// Deliveries is how often an effect is tried before it is left to an
	// operator. Default: DefaultDeliveries.
	Deliveries int
	// DueFor is how long an effect may be due before its destination is flagged
	// as unserved. Default: 5 minutes.
	DueFor time.Duration
	// Retention says how long finished items and refusals are remembered.
	// Default: work.DefaultRetention. NoPrune keeps all of them.
	Retention work.Retention
	NoPrune   bool
	// PruneLimit bounds what one pass forgets: this many items, and this many
	// refusals. Default: 1000.
	PruneLimit int
	// DryRun reports what would be done, and changes nothing.
	DryRun bool
	// Raise lists where the fence may be raised at the guards of requeued
	// items, besides the ledger's own place: see work.FenceOptions. Default:
	// nowhere else.
	Raise guard.Allowed
	// Owner and Instance say who requeues. Default: reconciler@user@host, and a
	// unique name.
	Owner, Instance string
	// Interval is the time between two passes of RunReconciler. Default: 5
	// seconds.
	//
	// Key is the key of its lease. Default: "work/reconciler". TTL is how long
	// the others wait if a replica dies in a pass. Default: 1 minute or twice
	// the interval, whichever is longer.
	Interval time.Duration
	Key      string
	TTL      time.Duration
	// Logger receives a record of every action. The record names are stable.
	// Default: nothing is logged.
	Logger *slog.Logger
	// Observe is called for every action that was done or, in a dry run, would
	// be. Passed is called after every pass of RunReconciler. Default: nothing
	// is called.
	Observe func(Action)
	Passed  func(Report, error)

	unsurveyed bool // leave out the survey of destinations
}

func (o *ReconcileOptions) filled() ReconcileOptions {
	var f ReconcileOptions
	if o != nil {
		f = *o
	}
	f.StallAfter, f.Interval = cmp.Or(f.StallAfter, 15*time.Minute), cmp.Or(f.Interval, 5*time.Second)
	f.DueFor = cmp.Or(f.DueFor, 5*time.Minute)
	f.Deliveries, f.PruneLimit = cmp.Or(f.Deliveries, DefaultDeliveries), cmp.Or(f.PruneLimit, 1000)
	f.Owner, f.Instance, f.Key = cmp.Or(f.Owner, "reconciler@"+identity.Owner()),
		cmp.Or(f.Instance, identity.Instance()), cmp.Or(f.Key, "work/reconciler")
	f.TTL = cmp.Or(f.TTL, max(time.Minute, 2*f.Interval))
	if len(f.Owner) > tenure.MaxName {
		f.Owner = "reconciler"
	}
	return f
}

// Report counts what one pass did or, in a dry run, would have done.
type Report struct {
	DryRun   bool     `json:"dry_run,omitempty"`
	Actions  []Action `json:"-"`
	Running  int      `json:"running"` // items looked at
	Requeued int      `json:"requeued"`
	Buried   int      `json:"buried"`
	Stalled  int      `json:"stalled"`
	// Recovered counts effects that are pending again, Doubtful those that wait
	// for an operator.
	Recovered int `json:"recovered"`
	Doubtful  int `json:"doubtful"`
	// Unserved counts destinations whose effects have been due for long.
	Unserved int         `json:"unserved"`
	Pruned   work.Pruned `json:"pruned"`
	// Unfenced counts items that were requeued or buried, although the fence is
	// not up at each of their guards. The pass then returns an error that
	// matches work.ErrUnfenced and names the first of them.
	Unfenced int `json:"unfenced"`
	// Overtaken counts planned changes that were out of date: the owner was
	// heard of again, or somebody was faster.
	Overtaken int `json:"overtaken"`
}

// RunReconciler reconciles again and again until ctx ends. In every interval
// one of all replicas makes a pass, under a lease of the client. If a pass
// fails, the client emits an event, and the pass is tried again.
//
// When ctx has ended, RunReconciler returns nil, after the pass in progress. It
// returns an error only for invalid input, or if the client is closed.
func RunReconciler(ctx context.Context, c *croft.Client, l work.Ledger, o *ReconcileOptions) error {
	f := o.filled()
	var surveyed time.Time
	return c.Loop(ctx, f.Key, f.Interval, &croft.LeaseOptions{TTL: f.TTL}, func(
		ctx context.Context, lease *croft.Lease,
	) error {
		pass := f
		if pass.unsurveyed = time.Since(surveyed) < surveyEvery; !pass.unsurveyed {
			surveyed = time.Now()
		}
		r, err := Reconcile(ctx, l, &pass)
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

// Reconcile makes one pass. Its report is valid also if it returns an error.
func Reconcile(ctx context.Context, l work.Ledger, o *ReconcileOptions) (Report, error) {
	f := o.filled()
	r := Report{DryRun: f.DryRun}
	var items []work.Item
	// One item that cannot be read must not keep all others from being
	// requeued.
	var unread error
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
	err = errors.Join(unread, r.carryOut(ctx, l, plan(items, orphans, now, f), f), r.survey(ctx, l, f))
	if f.NoPrune || f.Queue != "" { // the retention is that of the whole ledger
		return r, err
	}
	return r, errors.Join(err, r.prune(ctx, l, now, f))
}

// surveyEvery is how often RunReconciler counts what is due. That costs more
// than a pass.
const surveyEvery = time.Minute

// survey flags destinations whose effects nobody delivers, if the ledger can
// tell at a bounded cost.
func (r *Report) survey(ctx context.Context, l work.Ledger, f ReconcileOptions) error {
	surveyor, can := l.(work.Surveyor)
	if !can || f.unsurveyed || f.Queue != "" { // destinations belong to no queue
		return nil
	}
	open, err := surveyor.Backlog(ctx, f.StallAfter)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return fmt.Errorf("counting what is due: %w", err)
	}
	for _, a := range unserved(open, f) {
		r.done(a, f)
	}
	return nil
}

// mostAtOnce is the largest number of requests in one call.
const mostAtOnce = 500

// carryOut carries out a plan in as few calls as possible, and counts the
// actions.
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
				Verb: work.Requeue, ID: a.Item, Token: a.item.Record.Token, Secret: tenure.NewSecret(),
				Owner: f.Owner, Instance: f.Instance,
			})
		}
	}
	// Joined once, at the end: an error that is joined again and again takes
	// the square of their number to print.
	var failed []error
	for begin := 0; begin < len(requests); begin += mostAtOnce {
		end := min(begin+mostAtOnce, len(requests))
		for i, t := range work.Act(ctx, l, requests[begin:end], &work.FenceOptions{Raise: f.Raise}) {
			failed = append(failed, r.answered(of[begin+i], t.Err, f))
		}
	}
	for begin := 0; begin < len(settlements); begin += mostAtOnce {
		end := min(begin+mostAtOnce, len(settlements))
		for i, answer := range l.Settle(ctx, settlements[begin:end]) {
			failed = append(failed, r.answered(ofEffects[begin+i], answer.Err, f))
		}
	}
	if more := r.Unfenced - mostUnfenced; more > 0 {
		failed = append(failed, fmt.Errorf("%w: so it is with %d more items", work.ErrUnfenced, more))
	}
	return errors.Join(failed...)
}

// mostUnfenced bounds how many items the error of a pass names because the
// fence is not up. Others chose their targets, and an item may have many.
const mostUnfenced = 10

// answered counts an action by the ledger's answer.
func (r *Report) answered(a Action, err error, f ReconcileOptions) error {
	switch {
	case err == nil:
		r.done(a, f)
	case errors.Is(err, work.ErrUnfenced):
		r.Unfenced++
		r.done(a, f)
		if r.Unfenced <= mostUnfenced {
			return err
		}
	case errors.Is(err, work.ErrStale), errors.Is(err, work.ErrState), errors.Is(err, work.ErrNotFound):
		r.Overtaken++
	default:
		return fmt.Errorf("%s: %w", a.Kind, err)
	}
	return nil
}

// done counts and logs an action, and passes it to the observer.
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
	case Unserved:
		r.Unserved++
	}
	if f.Observe != nil {
		f.Observe(a)
	}
	if f.Logger == nil {
		return
	}
	level := slog.LevelInfo
	if a.Kind == Buried || a.Kind == Stalled || a.Kind == Doubtful || a.Kind == Unserved {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("why", a.Why)}
	for _, f := range []struct{ name, text string }{
		{"queue", a.Queue}, {"item", string(a.Item)}, {"effect", a.Effect}, {"to", a.To}, {"owner", a.Owner},
	} {
		if f.text != "" {
			attrs = append(attrs, slog.String(f.name, f.text))
		}
	}
	if f.DryRun {
		attrs = append(attrs, slog.Bool("dry_run", true))
	}
	f.Logger.LogAttrs(context.Background(), level, string(a.Kind), attrs...)
}

// prune forgets old items and refusals or, in a dry run, counts them.
func (r *Report) prune(ctx context.Context, l work.Ledger, now time.Time, f ReconcileOptions) error {
	var err error
	if f.DryRun {
		r.Pruned, err = prunable(ctx, l, now, f)
	} else {
		r.Pruned, err = l.Prune(ctx, f.Retention, f.PruneLimit)
	}
	if n := r.Pruned.Items + r.Pruned.Refusals; n > 0 {
		r.done(Action{Kind: Pruned, Count: n, Why: fmt.Sprintf(
			"%d items and %d refusals are older than their retention", r.Pruned.Items, r.Pruned.Refusals)}, f)
	}
	if err != nil {
		return fmt.Errorf("pruning: %w", err)
	}
	return nil
}

// prunable counts the items and refusals that a pass would forget.
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
		if n.Refusals < f.PruneLimit && retention.ForgetsRefusal(refusal, now) {
			n.Refusals++
		}
	}
	return n, nil
}

// String returns the report in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d running, %d requeued, %d buried, %d stalled, %d effects recovered, %d doubtful, "+
		"%d destinations unserved, "+
		"%d items and %d refusals pruned, %d overtaken, %d unfenced",
		r.Running, r.Requeued, r.Buried, r.Stalled, r.Recovered, r.Doubtful, r.Unserved,
		r.Pruned.Items, r.Pruned.Refusals, r.Overtaken, r.Unfenced)
}
