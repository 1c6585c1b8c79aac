package steward_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// guarded adds an item that names a file, claims it, and raises the fence as a
// worker does.
func (r *rig) guarded(folder string, limit int) work.Item {
	r.Helper()
	allowed, err := guard.Allow(folder)
	if err != nil {
		r.Fatal(err)
	}
	r.apply(work.Request{
		Verb: work.Add, ID: work.NewID(), Queue: "q", Limit: limit, Guards: []string{filepath.Join(folder, "{id}")},
	})
	c := work.Claim{Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
	items, err := r.l.Claim(r.Context(), c)
	if err != nil || len(items) != 1 {
		r.Fatal(items, err)
	}
	if err := work.Fence(r.Context(), r.l, items, c.Secret, &work.FenceOptions{Raise: allowed})[0]; err != nil {
		r.Fatal(err)
	}
	return items[0]
}

// answer returns what the guard of an item says to its owner of before.
func (r *rig) answer(it work.Item) error {
	r.Helper()
	g, err := guard.Open(r.Context(), it.Guards[0])
	if err != nil {
		r.Fatal(err)
	}
	defer g.Close()
	_, err = g.Raise(r.Context(), it.Record.Stamp())
	return err
}

// TestARequeueRaisesTheFence: after a pass, the guards of requeued and buried
// items refuse the owners that were not heard of.
func TestARequeueRaisesTheFence(t *testing.T) {
	r := newRig(t)
	folder := t.TempDir()
	allowed, err := guard.Allow(folder)
	if err != nil {
		t.Fatal(err)
	}
	lapsed, exhausted := r.guarded(folder, 0), r.guarded(folder, 1)
	r.clock.Advance(time.Minute)
	report := r.reconcile(&steward.ReconcileOptions{Raise: allowed})
	if report.Requeued != 1 || report.Buried != 1 || report.Unfenced != 0 {
		t.Errorf("did %s", report)
	}
	for _, it := range []work.Item{lapsed, exhausted} {
		if err := r.answer(it); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the guard answers the old owner %v, want stale", err)
		}
	}
}

// TestARequeueThatCannotRaiseTheFenceIsToldAndDone: nobody allowed the
// reconciler to open the guard. So it opens nothing, requeues all items, and
// its error says which fence is not up.
func TestARequeueThatCannotRaiseTheFenceIsToldAndDone(t *testing.T) {
	r := newRig(t)
	guarded := r.guarded(t.TempDir(), 0)
	plain, _ := r.running("other", 0)
	r.clock.Advance(time.Minute)
	report, err := steward.Reconcile(t.Context(), r.l, nil)
	if !errors.Is(err, work.ErrUnfenced) || !errors.Is(err, guard.ErrNotAllowed) ||
		!strings.Contains(err.Error(), guarded.Guards[0]) {
		t.Errorf("the pass says %v", err)
	}
	if report.Requeued != 2 || report.Unfenced != 1 || report.Overtaken != 0 || len(report.Actions) != 2 {
		t.Errorf("did %s", report)
	}
	if r.state(guarded.ID) != work.Waiting || r.state(plain.ID) != work.Waiting {
		t.Errorf("the items are %s and %s", r.state(guarded.ID), r.state(plain.ID))
	}
	if err := r.answer(guarded); err != nil {
		t.Errorf("the guard was raised: %v", err)
	}
	if report, err := steward.Reconcile(t.Context(), r.l, nil); err != nil || report.Requeued != 0 {
		t.Errorf("the next pass did %s, %v", report, err)
	}
}

// TestAPassThatCannotRaiseManyFencesSaysSoInFewWords: others chose the targets,
// so the error of a pass must not grow with them.
func TestAPassThatCannotRaiseManyFencesSaysSoInFewWords(t *testing.T) {
	r := newRig(t)
	folder := t.TempDir()
	const items = 25
	for range items {
		r.guarded(folder, 0)
	}
	r.clock.Advance(time.Minute)
	report, err := steward.Reconcile(t.Context(), r.l, nil)
	if !errors.Is(err, work.ErrUnfenced) || report.Unfenced != items || report.Requeued != items {
		t.Fatalf("did %s, %v", report, err)
	}
	text := err.Error()
	if n := strings.Count(text, folder); n != 10 || !strings.Contains(text, "15 more items") {
		t.Errorf("the error names %d items of %d:\n%s", n, items, text)
	}
}
