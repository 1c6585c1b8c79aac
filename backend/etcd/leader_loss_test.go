package etcd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// untilKnown asks again as long as the outcome is unknown, as Croft's client
// does.
func untilKnown(ctx context.Context, ask func() error) {
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

// resolvingStore is a store that repeats requests with an unknown outcome.
type resolvingStore struct{ *Store }

func (s resolvingStore) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := s.Store.Apply(ctx, requests)
	untilKnown(ctx, func() error {
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
		var unknown error // of any of them
		for i, a := range s.Store.Apply(ctx, again) {
			answers[open[i]] = a
			if errors.Is(a.Err, store.ErrUnknown) {
				unknown = a.Err
			}
		}
		return unknown
	})
	return answers
}

func (s resolvingStore) Get(ctx context.Context, key string) (rec tenure.Record, err error) {
	untilKnown(ctx, func() error {
		rec, err = s.Store.Get(ctx, key)
		return err
	})
	return rec, err
}

func (s resolvingStore) Sweep(ctx context.Context) (n int, err error) {
	untilKnown(ctx, func() error {
		var more int
		more, err = s.Store.Sweep(ctx)
		n += more
		return err
	})
	return n, err
}

func (s resolvingStore) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	var all []tenure.Record
	var failed error
	untilKnown(ctx, func() error {
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

// resolvingGuard is a guard that repeats requests with an unknown outcome.
type resolvingGuard struct{ *Guard }

// Write repeats a write with an unknown outcome. A repetition may be refused as
// repeated. The mark tells only whether that write was the last one made.
// etcd's own history of the value tells whether it was made at all.
func (g resolvingGuard) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (receipt guard.Receipt, err error) {
	payload, err := io.ReadAll(r)
	if err != nil {
		return receipt, err
	}
	tries := 0
	untilKnown(ctx, func() error {
		tries++
		receipt, err = g.Guard.Write(ctx, stamp, bytes.NewReader(payload))
		if tries > 1 && errors.Is(err, fence.ErrRepeated) {
			made, lost := everWritten(ctx, g.Guard, payload)
			if lost != nil {
				return store.Unknown(lost) // and it is tried again
			} else if made {
				receipt, err = guard.Receipt{Mark: stamp.Mark(), Bytes: int64(len(payload))}, nil
			}
		}
		return err
	})
	return receipt, err
}

// everWritten reports whether the guarded value has ever been this.
func everWritten(ctx context.Context, g *Guard, payload []byte) (bool, error) {
	for revision := int64(0); ; {
		resp, err := g.client.Get(ctx, g.key, clientv3.WithRev(revision))
		if err != nil || len(resp.Kvs) == 0 {
			return false, err
		}
		if bytes.Equal(resp.Kvs[0].Value, payload) {
			return true, nil
		}
		if revision = resp.Kvs[0].ModRevision - 1; resp.Kvs[0].Version == 1 {
			return false, nil
		}
	}
}

func (g resolvingGuard) Mark(ctx context.Context) (m fence.Mark, err error) {
	untilKnown(ctx, func() error {
		m, err = g.Guard.Mark(ctx)
		return err
	})
	return m, err
}

func (g resolvingGuard) Raise(ctx context.Context, stamp fence.Stamp) (m fence.Mark, err error) {
	untilKnown(ctx, func() error {
		m, err = g.Guard.Raise(ctx, stamp)
		return err
	})
	return m, err
}

func (g resolvingGuard) Rekey(ctx context.Context, key, actor, note string) (m fence.Mark, err error) {
	untilKnown(ctx, func() error {
		m, err = g.Guard.Rekey(ctx, key, actor, note)
		return err
	})
	return m, err
}

func (g resolvingGuard) Reset(ctx context.Context, floor fence.Token, actor, note string) (m fence.Mark, err error) {
	untilKnown(ctx, func() error {
		m, err = g.Guard.Reset(ctx, floor, actor, note)
		return err
	})
	return m, err
}

func (g resolvingGuard) Rekeyed(ctx context.Context) (r guard.Rekeyed, err error) {
	untilKnown(ctx, func() error {
		r, err = g.Guard.Rekeyed(ctx)
		return err
	})
	return r, err
}

var _ guard.Artifact = resolvingGuard{}

// TestTheLawsHoldWhileLeadersAreKilled runs the suites with the leader of three
// members killed every few seconds. A client that repeats requests with an
// unknown outcome finds every law kept.
//
// These are the groups about laws 1, 2 and 6 to 8, and the guard's suite for
// law 3, on a clock of the test's own. The other groups are left out. They are
// about things that an outage delays (wake-ups, the end of contexts, calls
// without an answer), about listings and sizes that have nothing to do with
// leaders, or about the expiry of etcd leases, which an outage may put off.
func TestTheLawsHoldWhileLeadersAreKilled(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdThree(t, "unsafe-no-fsync: true")
	ctx, cancel := context.WithCancel(t.Context())
	kills := 0
	first, killed := context.WithCancel(ctx) // over when the first leader is dead
	var killing sync.WaitGroup
	killing.Go(func() {
		defer killed()
		for {
			leader := c.Leader(t)
			leader.Kill()
			kills++
			killed()
			_ = clock.Sleep(ctx, 700*time.Millisecond)
			leader.Restart(t)
			if clock.Sleep(ctx, 2*time.Second) != nil {
				return
			}
		}
	})
	<-first.Done() // the first requests meet a cluster without a leader
	begun := time.Now()
	var suites sync.WaitGroup
	report := func(failures map[string][]string) {
		for name, said := range failures {
			t.Errorf("%s: %q", name, said)
		}
	}
	for _, group := range []string{"transitions", "reservations", "history", "repeats", "contention", "tokens", "batch"} {
		suites.Go(func() {
			report(storetest.Failures(t, func(tb testing.TB) storetest.Harness {
				h := harness(tb, c.Apart(), storetest.NewClock())
				opens := h.Open
				h.Open = func(tb testing.TB, o storetest.Options) store.Store {
					st := opens(tb, o).(*Store)
					st.timeout = requestTimeout // as clients have it
					return resolvingStore{st}
				}
				h.Patience = testenv.Patience
				return h
			}, group))
			t.Logf("%s: %s", group, time.Since(begun))
		})
	}
	suites.Go(func() {
		h := guardHarness(func(testing.TB) *testenv.EtcdCluster { return c }, theLaw)
		made := h.Make
		h.Make = func(tb testing.TB) guardtest.Resource {
			r := made(tb)
			opens, reads := r.Open, r.Read
			r.Open = func(tb testing.TB) guardtest.Handle {
				g := resolvingGuard{opens(tb).Guard.(*Guard)}
				g.timeout = 2 * requestTimeout // as writers have it
				return guardtest.Handle{Guard: g, Write: func(ctx context.Context, s fence.Stamp, payload []byte) error {
					_, err := g.Write(ctx, s, bytes.NewReader(payload))
					return err
				}}
			}
			r.Read = func(ctx context.Context) (content []byte, there bool, err error) {
				for range 200 {
					if content, there, err = reads(ctx); err == nil || clock.Sleep(ctx, 20*time.Millisecond) != nil {
						break
					}
				}
				return content, there, err
			}
			return r
		}
		report(guardtest.Failures(t, h))
		t.Logf("the guard's suite: %s", time.Since(begun))
	})
	suites.Wait()
	cancel()
	killing.Wait()
	t.Logf("%d leaders killed in %s", kills, time.Since(begun))
	if kills < 2 {
		t.Error("no leader was killed while the suites ran")
	}
}
