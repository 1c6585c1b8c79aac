package steward_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	croft "github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// rig is a ledger with a clock that the test moves.
type rig struct {
	*testing.T
	l     *mem.Ledger
	clock *storetest.Clock
}

func newRig(t *testing.T) *rig {
	clock := storetest.NewClock()
	return &rig{T: t, l: mem.NewLedger(&mem.Options{Now: clock.Now}), clock: clock}
}

func (r *rig) apply(req work.Request) work.Item {
	r.Helper()
	a := r.l.Apply(context.Background(), []work.Request{req})[0]
	if a.Err != nil {
		r.Fatal(a.Err)
	}
	return a.Item
}

// running adds an item and claims it.
func (r *rig) running(queue string, limit int) (work.Item, tenure.Secret) {
	r.Helper()
	r.apply(work.Request{Verb: work.Add, ID: work.NewID(), Queue: queue, Limit: limit})
	secret := tenure.NewSecret()
	items, err := r.l.Claim(context.Background(), work.Claim{Queues: []string{queue}, Limit: 1, Secret: secret, Owner: "ann", TTL: time.Minute})
	if err != nil || len(items) != 1 {
		r.Fatal(items, err)
	}
	return items[0], secret
}

// done adds an item, claims it and completes it with effects.
func (r *rig) done(queue string, effects ...work.Emission) work.ID {
	r.Helper()
	it, secret := r.running(queue, 0)
	return r.apply(work.Request{Verb: work.Complete, ID: it.ID, Token: it.Record.Token, Secret: secret, Effects: effects}).ID
}

func (r *rig) state(id work.ID) work.State {
	r.Helper()
	it, err := r.l.Get(context.Background(), id)
	if errors.Is(err, work.ErrNotFound) {
		return "forgotten"
	}
	if err != nil {
		r.Fatal(err)
	}
	return it.State
}

func (r *rig) reconcile(o *steward.ReconcileOptions) steward.Report {
	r.Helper()
	report, err := steward.Reconcile(context.Background(), r.l, o)
	if err != nil {
		r.Fatal(err)
	}
	return report
}

// disorder makes one of everything that a reconciler must find.
func (r *rig) disorder() (lapsed, exhausted, stalled, alive work.ID) {
	stamp := fence.Stamp{Key: "work/dispatcher", Token: 5, Grant: tenure.NewSecret().Grant()}
	r.done("old")
	r.done("effects", work.Emission{Name: "again"}, work.Emission{Name: "once", AtMostOnce: true})
	if _, err := r.l.Take(context.Background(), work.Taking{Stamp: stamp, Limit: 10, Hold: time.Second}); err != nil {
		r.Fatal(err)
	}
	r.clock.Advance(8 * 24 * time.Hour)
	r.done("new")
	a, _ := r.running("lapsed", 0)
	b, _ := r.running("exhausted", 1)
	r.clock.Advance(time.Minute)
	c, secret := r.running("stalled", 0)
	for range 20 {
		r.clock.Advance(time.Minute)
		r.apply(work.Request{Verb: work.Heartbeat, ID: c.ID, Token: c.Record.Token, Secret: secret})
	}
	d, _ := r.running("alive", 0)
	return a.ID, b.ID, c.ID, d.ID
}

// TestAPassBringsOrder: each fault is found, mended, counted and logged.
func TestAPassBringsOrder(t *testing.T) {
	r := newRig(t)
	lapsed, exhausted, stalled, alive := r.disorder()
	var log bytes.Buffer
	var seen []steward.ActionKind
	report := r.reconcile(&steward.ReconcileOptions{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Observe: func(a steward.Action) { seen = append(seen, a.Kind) },
	})
	want := steward.Report{Running: 4, Requeued: 1, Buried: 1, Stalled: 1, Recovered: 1, Doubtful: 1, Pruned: work.Pruned{Items: 1}}
	report.Actions = nil
	if report.String() != want.String() {
		t.Errorf("did %s, want %s", report, want)
	}
	for id, state := range map[work.ID]work.State{lapsed: work.Waiting, exhausted: work.Dead, stalled: work.Running, alive: work.Running} {
		if got := r.state(id); got != state {
			t.Errorf("an item is %s, want %s", got, state)
		}
	}
	for _, kind := range []steward.ActionKind{steward.Requeued, steward.Buried, steward.Stalled, steward.Recovered, steward.Doubtful, steward.Pruned} {
		if !strings.Contains(log.String(), "msg="+string(kind)) {
			t.Errorf("%s is not in the log:\n%s", kind, &log)
		}
	}
	if len(seen) != 6 {
		t.Errorf("shown were %v", seen)
	}
	if again := r.reconcile(nil); again.Requeued+again.Buried+again.Recovered+again.Pruned.Items > 0 {
		t.Errorf("a second pass did %s", again)
	}
	it, _ := r.l.Get(t.Context(), lapsed)
	if it.Record.Cause != tenure.Expired || it.Attempts != 1 {
		t.Errorf("requeued with the cause %s after %d attempts", it.Record.Cause, it.Attempts)
	}
}

// TestADryRunChangesNothingAndTellsTheSame: a dry run reports the same actions
// as a pass, and changes nothing.
func TestADryRunChangesNothingAndTellsTheSame(t *testing.T) {
	r := newRig(t)
	lapsed, exhausted, _, _ := r.disorder()
	dry := r.reconcile(&steward.ReconcileOptions{DryRun: true})
	for _, id := range []work.ID{lapsed, exhausted} {
		if got := r.state(id); got != work.Running {
			t.Errorf("after a dry run an item is %s", got)
		}
	}
	wet := r.reconcile(nil)
	if dry.String() != wet.String() || !dry.DryRun {
		t.Errorf("the dry run told %s, the real one %s", dry, wet)
	}
}

// TestAnOwnerThatComesBackIsLeftAlone: the owner's heartbeat arrives between
// the reconciler's read and its write, and wins.
func TestAnOwnerThatComesBackIsLeftAlone(t *testing.T) {
	r := newRig(t)
	it, secret := r.running("q", 0)
	r.clock.Advance(time.Minute)
	report, err := steward.Reconcile(t.Context(), late{r.l, func() {
		r.apply(work.Request{Verb: work.Heartbeat, ID: it.ID, Token: it.Record.Token, Secret: secret})
	}}, nil)
	if err != nil || report.Overtaken != 1 || report.Requeued != 0 || r.state(it.ID) != work.Running {
		t.Errorf("did %s, %v", report, err)
	}
}

// late is a ledger that calls a function just before the reconciler's writes
// arrive.
type late struct {
	*mem.Ledger
	before func()
}

func (l late) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	l.before()
	return l.Ledger.Apply(ctx, requests)
}

// TestOneReplicaReconcilesInAnInterval: of several replicas one makes the pass
// of each interval, under a lease, until its context ends.
func TestOneReplicaReconcilesInAnInterval(t *testing.T) {
	r := newRig(t)
	it, _ := r.running("q", 0)
	r.clock.Advance(time.Minute)
	st := mem.New(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	passes := make(chan steward.Report, 100)
	var all sync.WaitGroup
	for range 3 {
		c := croft.New(st, nil)
		defer c.Close()
		all.Go(func() {
			err := steward.RunReconciler(ctx, c, r.l, &steward.ReconcileOptions{Interval: time.Hour, Passed: func(p steward.Report, err error) {
				if err != nil {
					t.Error(err)
				}
				passes <- p
			}})
			if err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
	if p := <-passes; p.Requeued != 1 || r.state(it.ID) != work.Waiting {
		t.Errorf("the pass did %s", p)
	}
	cancel()
	all.Wait()
	if len(passes) != 0 {
		t.Errorf("%d more passes in one interval", len(passes))
	}
}

// TestAPassIsDoneThoughItsContextEndsThen: the replica shuts down between the
// end of its pass and its report. No other replica begins in that interval.
func TestAPassIsDoneThoughItsContextEndsThen(t *testing.T) {
	r := newRig(t)
	c := croft.New(mem.New(nil), nil)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := steward.RunReconciler(ctx, c, r.l, &steward.ReconcileOptions{Interval: time.Hour, Key: "k", Passed: func(_ steward.Report, err error) {
		if err != nil {
			t.Error(err)
		}
		cancel()
	}})
	if err != nil {
		t.Errorf("it ended with %v", err)
	}
	if _, err := c.Acquire(t.Context(), "k", nil); !errors.Is(err, croft.ErrHeld) {
		t.Errorf("another asks for the same interval: %v, want held", err)
	}
}

// TestEffectsThatNobodyDeliversAreNamed: once they have been due for a while,
// by destination. Effects that were delivered, or wait for their time, are not.
func TestEffectsThatNobodyDeliversAreNamed(t *testing.T) {
	o := newOffice(t)
	o.done("q", work.Emission{Name: "mail"}, work.Emission{Name: "hook"})
	o.done("q", work.Emission{Name: "mail"})
	sent := o.done("q", work.Emission{Name: "works"})
	o.dispatch(o.l, map[string]steward.Deliverer{"works": &receiver{}}, nil)
	o.eventually(sent, work.Sent)
	if r := o.reconcile(nil); r.Unserved != 0 {
		t.Errorf("at once: %+v", r)
	}
	var named []string
	r := o.reconcile(&steward.ReconcileOptions{DueFor: time.Nanosecond, Observe: func(a steward.Action) {
		if a.Kind == steward.Unserved {
			named = append(named, fmt.Sprint(a.Count, " for ", a.To))
		}
	}})
	if r.Unserved != 2 || !slices.Equal(named, []string{"1 for hook", "2 for mail"}) {
		t.Errorf("named %q in %+v", named, r)
	}
}
