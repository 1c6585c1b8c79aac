package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// isSecond picks the requests on keys that end in 2.
func isSecond(req tenure.Request) bool { return strings.HasSuffix(req.Key, "2") }

// TestAFaultHitsOnlyThePickedRequests: the rest of the batch is answered as
// usual, in order. Each fault is an unknown outcome.
func TestAFaultHitsOnlyThePickedRequests(t *testing.T) {
	for name, c := range map[string]struct {
		net       func(store.Store) store.Store
		delivered bool
		known     bool
	}{
		"DropReply":    {func(st store.Store) store.Store { return DropReply(st, isSecond) }, true, false},
		"DropRequest":  {func(st store.Store) store.Store { return DropRequest(st, isSecond) }, false, false},
		"DeliverLate":  {func(st store.Store) store.Store { return DeliverLate(st, isSecond) }, false, false},
		"DeliverTwice": {func(st store.Store) store.Store { return DeliverTwice(st, isSecond) }, true, true},
	} {
		st := sound().place(t).Open(t, Options{})
		net := c.net(st)
		requests := []tenure.Request{acquire("1", "ann"), acquire("2", "ann"), acquire("3", "ann")}
		for i, a := range net.Apply(t.Context(), requests) {
			if i != 1 || c.known {
				if a.Err != nil || a.Record.Key != requests[i].Key {
					t.Errorf("%s: answer %d is %v about %q", name, i, a.Err, a.Record.Key)
				}
				continue
			}
			if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, ErrFault) || !a.Record.IsZero() {
				t.Errorf("%s: the fault is answered with %v and %+v", name, a.Err, a.Record)
			}
		}
		rec, err := net.Get(t.Context(), "2")
		if err != nil || rec.IsZero() == c.delivered {
			t.Errorf("%s: the record is %+v, %v", name, rec, err)
		}
	}
}

// TestLateRequestsComeInTheirOrder: they come once, and only when Deliver is
// called.
func TestLateRequestsComeInTheirOrder(t *testing.T) {
	st := sound().place(t).Open(t, Options{})
	late := DeliverLate(st, nil)
	mine := acquire("k", "ann")
	for _, req := range []tenure.Request{mine, renew(mine), release(mine)} {
		late.Apply(t.Context(), []tenure.Request{req})
	}
	if n := len(late.Pending()); n != 3 {
		t.Fatalf("%d requests are pending, want 3", n)
	}
	answers := late.Deliver(t.Context())
	if len(answers) != 3 || slices.ContainsFunc(answers, func(a store.Answer) bool { return a.Err != nil }) {
		t.Errorf("in order all three succeed; the answers are %+v", answers)
	}
	if again := late.Deliver(t.Context()); again != nil || len(late.Pending()) != 0 {
		t.Errorf("delivered again: %+v", again)
	}
}

// TestFirstPicksTheFirstN: and it does not count requests that its own When
// does not pick.
func TestFirstPicksTheFirstN(t *testing.T) {
	when := First(2, isSecond)
	var picked []bool
	for _, key := range []string{"1", "2", "1", "2", "2"} {
		picked = append(picked, when(acquire(key, "ann")))
	}
	if want := []bool{false, true, false, true, false}; !slices.Equal(picked, want) {
		t.Errorf("picked %v, want %v", picked, want)
	}
}

// TestANetworkKeepsOptionalMethods: if a store can watch and sweep, it can do
// so behind a network, too. If it cannot, the error says so.
func TestANetworkKeepsOptionalMethods(t *testing.T) {
	able := DropReply(sound().place(t).Open(t, Options{}), nil)
	if _, err := able.(store.Watcher).Watch(t.Context(), "k"); err != nil {
		t.Errorf("Watch: %v", err)
	}
	if _, err := able.(store.Sweeper).Sweep(t.Context()); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	bare := DropRequest(struct{ store.Store }{sound().place(t).Open(t, Options{})}, nil)
	if _, err := bare.(store.Watcher).Watch(t.Context(), "k"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Watch: %v", err)
	}
	if _, err := bare.(store.Sweeper).Sweep(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Sweep: %v", err)
	}
	if _, err := bare.(store.Examiner).Examine(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Examine: %v", err)
	}
}

// TestAnIncompleteHarnessIsReported: the suite reports it, and does not crash
// somewhere inside.
func TestAnIncompleteHarnessIsReported(t *testing.T) {
	failures := suite.Record(t, func(tb testing.TB) { newTrial(tb, Harness{}) })
	if len(failures) != 1 || !strings.Contains(failures[0], "lacks Open or Wipe") {
		t.Errorf("reported %q", failures)
	}
}

// silent is a store that forgets by itself: it has no Sweep.
type silent struct{ store.Store }

// TestAStoreThatForgetsByItselfPasses: records may go away without a sweep. The
// suite notices if they stay.
func TestAStoreThatForgetsByItselfPasses(t *testing.T) {
	for _, forgets := range []bool{true, false} {
		failures := Failures(t, func(tb testing.TB) Harness {
			p := sound()
			h := p.place(tb)
			open := h.Open
			h.Open = func(tb testing.TB, o Options) store.Store {
				st := open(tb, o).(*handle)
				if forgets {
					read := p.reads
					p.reads = func(by *handle, key string) tenure.Record {
						_, _ = st.Sweep(context.Background())
						return read(by, key)
					}
				}
				return silent{st}
			}
			return h
		}, "retention")
		if forgets && len(failures) > 0 {
			t.Errorf("a store that forgets by itself: %q", failures)
		}
		if !forgets && len(failures) == 0 {
			t.Error("a store that never forgets and has no Sweep passes")
		}
	}
}
