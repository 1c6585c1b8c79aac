package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// The stores and guards in this file are broken on purpose. The suites must
// fail for each of them.

// TestBrokenStoresAreCaught runs the suite of stores on broken ones.
func TestBrokenStoresAreCaught(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		group string
		spoil func(*Store) store.Store
	}{
		"answers before the transaction has ended":                   {"ambiguity", func(s *Store) store.Store { return hasty{s} }},
		"drops records that still matter":                            {"retention", func(s *Store) store.Store { s.options.Retention = -time.Hour * 24 * 365; return s }},
		"takes a record that it remembers for the one that is there": {"handles", func(s *Store) store.Store { return &stubborn{Store: s, records: map[string]tenure.Record{}} }},
		"wakes nobody": {"watch", func(s *Store) store.Store { return asleep{s} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failures := storetest.Failures(t, func(tb testing.TB) storetest.Harness {
				clock := storetest.NewClock()
				h := at(tb, filepath.Join(memoryDir(tb), "croft.db"), clock.Now, clock.Advance)
				sound := h.Open
				h.Patience = time.Second
				h.Open = func(tb testing.TB, o storetest.Options) store.Store { return c.spoil(sound(tb, o).(*Store)) }
				return h
			}, c.group)
			if len(failures) == 0 {
				t.Errorf("a store that %s passes %q", name, c.group)
			}
		})
	}
}

// hasty deletes a record right after its grant, as a store does that forgets
// committed changes.
type hasty struct{ *Store }

func (h hasty) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := h.Store.Apply(ctx, requests)
	for i, req := range requests {
		if req.Verb == tenure.Acquire && answers[i].Err == nil {
			_ = h.Store.do(ctx, 1, func(x *transaction) { x.run("DELETE FROM croft_lease WHERE id = (SELECT max(id) FROM croft_lease)") })
		}
	}
	return answers
}

// stubborn reads every record once, and never again.
type stubborn struct {
	*Store
	mu      sync.Mutex
	records map[string]tenure.Record
}

func (s *stubborn) Get(ctx context.Context, key string) (tenure.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec, ok := s.records[key]; ok {
		return rec, nil
	}
	rec, err := s.Store.Get(ctx, key)
	s.records[key] = rec
	return rec, err
}

// asleep has watches that nothing wakes.
type asleep struct{ *Store }

func (asleep) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	c := make(chan struct{})
	context.AfterFunc(ctx, func() { close(c) })
	return c, fence.CheckKey(key)
}

// TestAStoreWithoutTransactionsIsCaught runs the suite on a store that reads
// and writes in two steps.
func TestAStoreWithoutTransactionsIsCaught(t *testing.T) {
	t.Parallel()
	failures := storetest.Failures(t, func(tb testing.TB) storetest.Harness {
		file := filepath.Join(memoryDir(tb), "croft.db")
		h := at(tb, file, nil, nil)
		h.Patience = time.Second
		h.Open = func(tb testing.TB, o storetest.Options) store.Store {
			return open(tb, file, &Options{
				Retention: o.Retention, begin: "SELECT 1", commit: "SELECT 1",
				// Others come in between, however busy the machine is.
				between: func() { time.Sleep(time.Millisecond) },
			})
		}
		return h
	}, "contention")
	if len(failures) == 0 {
		t.Error("a store that reads and writes in two steps passes")
	}
}

// TestAFailedCommitIsUnknown checks a failed commit: all callers that
// shared the transaction get an unknown outcome. Nothing of it is in the file,
// and asking again is safe.
func TestAFailedCommitIsUnknown(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	failing := open(t, file, &Options{begin: sqlBegin, commit: "SELECT json('{')"})
	defer failing.Close()
	mine := acquire("k", "ann")
	for range 2 {
		for _, a := range failing.Apply(t.Context(), []tenure.Request{mine, acquire("j", "ann"), {Verb: "bad"}})[:2] {
			if !errors.Is(a.Err, store.ErrUnknown) || !a.Record.IsZero() {
				t.Errorf("a failed commit: %+v, %v", a.Record, a.Err)
			}
		}
		if rec, err := failing.Get(t.Context(), "k"); err != nil || !rec.IsZero() {
			t.Errorf("half of it is there: %+v, %v", rec, err)
		}
	}
	st := open(t, file, nil)
	defer st.Close()
	if a := one(st, mine); a.Err != nil || a.Record.Cause != tenure.First {
		t.Errorf("asked again: %+v, %v", a.Record, a.Err)
	}
}

// TestBrokenGuardsAreCaught runs the suite of guards on broken ones.
func TestBrokenGuardsAreCaught(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*clerk.Resource){
		"does not take the lock": func(r *clerk.Resource) { r.Lock = "SELECT 1" },
		"shares one mark":        func(r *clerk.Resource) { r.Args = []any{"everybody"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := applicationAt(t, filepath.Join(memoryDir(t), "app.db"), "&_pragma=journal_mode(wal)&_pragma=synchronous(off)")
			failures := guardtest.Failures(t, guardtest.Harness{Large: 1 << 10, Make: func(t testing.TB) guardtest.Resource {
				r := resource(t, db, "fence table")
				sound := r.Open
				r.Open = func(t testing.TB) guardtest.Handle {
					h := sound(t)
					spoil(h.Guard.(*Guard).resource)
					return h
				}
				return r
			}})
			if len(failures) == 0 {
				t.Errorf("a guard that %s passes", name)
			}
		})
	}
}
