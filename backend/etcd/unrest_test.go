package etcd

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// steadfast asks again for as long as an outcome is unknown, as Croft's client does.
func steadfast(ctx context.Context, ask func() error) {
	for {
		if err := ask(); !errors.Is(err, store.ErrUnknown) || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// steadfastStore is a store whose unknown outcomes are resolved.
type steadfastStore struct{ *Store }

func (s steadfastStore) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := s.Store.Apply(ctx, requests)
	steadfast(ctx, func() error {
		var open []int
		var again []tenure.Request
		for i, a := range answers {
			if errors.Is(a.Err, store.ErrUnknown) {
				open, again = append(open, i), append(again, requests[i])
			}
		}
		if len(open) == 0 {
			return nil
		}
		for i, a := range s.Store.Apply(ctx, again) {
			answers[open[i]] = a
		}
		return answers[open[0]].Err
	})
	return answers
}

func (s steadfastStore) Get(ctx context.Context, key string) (rec tenure.Record, err error) {
	steadfast(ctx, func() error {
		rec, err = s.Store.Get(ctx, key)
		return err
	})
	return rec, err
}

func (s steadfastStore) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	var all []tenure.Record
	var failed error
	steadfast(ctx, func() error {
		all, failed = nil, nil
		for rec, err := range s.Store.List(ctx, prefix) {
			if err != nil {
				failed = err
				break
			}
			all = append(all, rec)
		}
		return failed
	})
	return func(yield func(tenure.Record, error) bool) {
		for _, rec := range all {
			if !yield(rec, nil) {
				return
			}
		}
		if failed != nil {
			yield(tenure.Record{}, failed)
		}
	}
}

// steadfastGuard is a guard whose unknown outcomes are resolved. A write that is refused as repeated after that, and whose stamp is the mark, was made by the copy whose answer was lost.
func steadfastGuard(g *Guard) guardtest.Handle {
	return guardtest.Handle{Guard: raising{g}, Write: func(ctx context.Context, stamp fence.Stamp, payload []byte) (err error) {
		tries := 0
		steadfast(ctx, func() error {
			tries++
			_, err = g.Write(ctx, stamp, bytes.NewReader(payload))
			if tries > 1 && errors.Is(err, fence.ErrRepeated) {
				if mark, lost := g.Mark(ctx); lost != nil {
					return lost // and it is tried again
				} else if mark == fence.Mark(stamp) {
					err = nil
				}
			}
			return err
		})
		return err
	}}
}

type raising struct{ *Guard }

func (g raising) Mark(ctx context.Context) (m fence.Mark, err error) {
	steadfast(ctx, func() error {
		m, err = g.Guard.Mark(ctx)
		return err
	})
	return m, err
}

func (g raising) Raise(ctx context.Context, stamp fence.Stamp) (m fence.Mark, err error) {
	steadfast(ctx, func() error {
		m, err = g.Guard.Raise(ctx, stamp)
		return err
	})
	return m, err
}

func (g raising) Rekey(ctx context.Context, key, actor, note string) (m fence.Mark, err error) {
	steadfast(ctx, func() error {
		m, err = g.Guard.Rekey(ctx, key, actor, note)
		return err
	})
	return m, err
}

var _ guard.Guard = raising{}

// TestTheLawsHoldWhileLeadersAreKilled: the suites, with the leader of three killed every few seconds. Whoever asks again whatever it was not told finds every law kept.
//
// These are groups about laws 1, 2, 6 and 7, and the guard's suite for law 3, on a clock of the test's own. Transitions, reservations and history (law 8) are left out for time. The others are about what an outage delays (wake-ups, the end of contexts, calls without an answer), about
// listings and sizes that have nothing to do with leaders, or about the etcd lease running out, which an outage may put off.
func TestTheLawsHoldWhileLeadersAreKilled(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdThree(t, "unsafe-no-fsync: true")
	ctx, cancel := context.WithCancel(t.Context())
	kills := 0
	var killing sync.WaitGroup
	killing.Go(func() {
		for sleep(ctx, 2*time.Second) == nil {
			leader := c.Leader(t)
			leader.Kill()
			kills++
			_ = sleep(ctx, 700*time.Millisecond)
			leader.Restart(t)
		}
	})
	begun := time.Now()
	var suites sync.WaitGroup
	report := func(failures map[string][]string) {
		for name, said := range failures {
			t.Errorf("%s: %q", name, said)
		}
	}
	for _, group := range []string{"repeats", "contention", "tokens", "batch"} {
		suites.Go(func() {
			report(storetest.Failures(t, func(tb testing.TB) storetest.Harness {
				h := place(tb, c.Apart(), storetest.NewClock())
				opens := h.Open
				h.Open = func(tb testing.TB, o storetest.Options) store.Store { return steadfastStore{opens(tb, o).(*Store)} }
				h.Patience = testenv.Patience
				return h
			}, group))
		})
	}
	suites.Go(func() {
		h := guardHarness(func(testing.TB) *testenv.EtcdCluster { return c }, theLaw)
		made := h.Make
		h.Make = func(tb testing.TB) guardtest.Resource {
			r := made(tb)
			opens, reads := r.Open, r.Read
			r.Open = func(tb testing.TB) guardtest.Handle { return steadfastGuard(opens(tb).Guard.(*Guard)) }
			r.Read = func(ctx context.Context) (content []byte, there bool, err error) {
				for range 200 {
					if content, there, err = reads(ctx); err == nil || sleep(ctx, 20*time.Millisecond) != nil {
						break
					}
				}
				return content, there, err
			}
			return r
		}
		failures := guardtest.Failures(t, h)
		// Of a numbered write without an answer nobody can tell any more whether it was made once a later one was: this check has to know.
		delete(failures, "a late write of one's own never lands after a newer one")
		report(failures)
	})
	suites.Wait()
	cancel()
	killing.Wait()
	t.Logf("%d leaders killed in %s", kills, time.Since(begun))
	if kills == 0 {
		t.Error("no leader was killed")
	}
}
