package croft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// TestAReleasedKeyIsPassedOnInOneCall: the next waiter's request travels in the
// same batch as the release.
func TestAReleasedKeyIsPassedOnInOneCall(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		next := make(chan *Lease)
		for range 3 {
			go func() { next <- r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) }()
		}
		synctest.Wait()
		for range 3 {
			tap.forget()
			if err := l.Release(r.Context()); err != nil {
				r.Fatal(err)
			}
			before := l.Token()
			if l = <-next; l.Token() <= before {
				r.Errorf("token %d after %d", l.Token(), before)
			}
			if calls := tap.all(); len(calls) != 1 || len(calls[0]) != 2 || calls[0][0].Verb != tenure.Release || calls[0][1].Verb != tenure.Acquire {
				r.Errorf("the store was asked %v, want one call with a release and an acquire", calls)
			}
		}
	})
}

// TestLaw6APassedKeyWithLostRepliesHasOneHolder: requests or replies are lost
// while a key is passed on.
func TestLaw6APassedKeyWithLostRepliesHasOneHolder(t *testing.T) {
	faults := map[string]func(store.Store, storetest.When) store.Store{
		"replies":  storetest.DropReply,
		"requests": storetest.DropRequest,
	}
	for name, fault := range faults {
		for _, verb := range []tenure.Verb{tenure.Acquire, tenure.Release} {
			t.Run(fmt.Sprint(name, " of ", verb), func(t *testing.T) {
				inBubble(t, func(r *rig) {
					n := 0
					c := r.client(fault(r.st, storetest.First(5, func(req tenure.Request) bool {
						n++
						return n > 1 && req.Verb == verb
					})), nil)
					l := r.acquire(c, "jobs/one", nil)
					next := make(chan *Lease)
					go func() { next <- r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) }()
					synctest.Wait()
					if err := l.Release(r.Context()); err != nil {
						r.Fatal(err)
					}
					l = <-next
					if rec := r.record("jobs/one"); rec.Token != l.Token() || rec.Grant != l.Stamp().Grant || rec.State != tenure.Held {
						r.Errorf("the store has token %d, %s; the holder has %d", rec.Token, rec.State, l.Token())
					}
					if err := l.Release(r.Context()); err != nil {
						r.Error(err)
					}
				})
			})
		}
	}
}

// TestAWaiterThatLeavesAsItGetsTheKeyLeavesNothing: whenever the waiter leaves,
// the key is free in the end.
func TestAWaiterThatLeavesAsItGetsTheKeyLeavesNothing(t *testing.T) {
	st := mem.New(nil)
	c := New(st, nil)
	defer c.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(300))*time.Microsecond)
				l, err := c.Acquire(ctx, "jobs/one", &LeaseOptions{WaitFor: Forever})
				if err == nil {
					err = l.Release(context.WithoutCancel(ctx))
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	last, err := c.Acquire(t.Context(), "jobs/one", &LeaseOptions{WaitFor: 30 * time.Second})
	if err != nil {
		t.Fatalf("the key did not become free: %v", err)
	}
	if err := last.Release(t.Context()); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// An attempt without a caller may still be resolving.
	if load := c.engine.Load(); load.Queues+load.Leases != 0 {
		t.Errorf("left in the client: %+v", load)
	}
}

// oneStep carries out a whole batch in one step, as a script in a server does.
// Nobody comes between a release and the acquire that travels with it. With
// awaited, it tells every release that another client waits.
type oneStep struct {
	*mem.Store
	mu      sync.Mutex
	awaited atomic.Bool
}

func (s *oneStep) Apply(ctx context.Context, batch []tenure.Request) []store.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := s.Store.Apply(ctx, batch)
	for i := range answers {
		answers[i].Awaited = batch[i].Verb == tenure.Release && s.awaited.Load()
	}
	return answers
}

// TestAClientWithManyContendersLeavesOthersTheirTurn: if the store says that
// others wait, however long each holds the key.
func TestAClientWithManyContendersLeavesOthersTheirTurn(t *testing.T) {
	for _, contenders := range []int{1, 5} {
		for _, work := range []time.Duration{time.Millisecond, 4 * engine.PollFirst} {
			t.Run(fmt.Sprint(contenders, " working ", work), func(t *testing.T) {
				inBubble(t, func(r *rig) {
					st := &oneStep{Store: r.st}
					st.awaited.Store(true)
					c := r.client(st, nil)
					var terms atomic.Int64
					ctx, cancel := context.WithCancel(r.Context())
					var all sync.WaitGroup
					for range contenders {
						all.Go(func() {
							for {
								l, err := c.Acquire(ctx, "jobs/one", &LeaseOptions{WaitFor: Forever})
								if err != nil {
									return
								}
								terms.Add(1)
								time.Sleep(work)
								_ = l.Release(context.WithoutCancel(ctx))
							}
						})
					}
					time.Sleep(100 * work)
					const turns = 10
					elsewhere := r.client(st, nil) // both clients get hints
					before, start := terms.Load(), time.Now()
					for range turns {
						other := r.acquire(elsewhere, "jobs/one", &LeaseOptions{WaitFor: time.Minute})
						time.Sleep(work)
						if err := other.Release(r.Context()); err != nil {
							r.Error(err)
						}
					}
					if n := terms.Load() - before; n > 3*turns {
						r.Errorf("%d contenders in one client had %d more turns before another client had %d", contenders, n, turns)
					}
					// Nobody waits long for a client that does not come.
					wantAfter(r, start, turns*work, turns*(4*work+4*engine.Courtesy))
					st.awaited.Store(false)
					time.Sleep(100 * work)
					before = terms.Load()
					time.Sleep(100 * work)
					if n := terms.Load() - before; n < 90 {
						r.Errorf("%d turns in the time of 100 of a client that nobody competes with, want nothing held back", n)
					}
					cancel()
					all.Wait()
				})
			})
		}
	}
}

// TestAKeyIsNotPassedOnForever: now and then it is free for a moment, because a
// store may not know that another client waits.
func TestAKeyIsNotPassedOnForever(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		var all sync.WaitGroup
		for range 5 * mostPassed {
			all.Go(func() {
				if err := r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}).Release(r.Context()); err != nil {
					r.Error(err)
				}
			})
		}
		all.Wait()
		passed, most := 0, 0
		for _, batch := range tap.all() {
			switch {
			case len(batch) > 1:
				passed++
				most = max(most, passed)
			case batch[0].Verb == tenure.Release:
				passed = 0
			}
		}
		if most > mostPassed {
			r.Errorf("passed on %d times in a row, want at most %d", most, mostPassed)
		}
	})
}

// TestAQueueThatYieldedIsForgotten: also if the lease meanwhile was lost
// instead of released.
func TestAQueueThatYieldedIsForgotten(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &oneStep{Store: r.st}
		st.awaited.Store(true)
		c, clk := r.sleeper(st, nil)
		l := r.acquire(c, "jobs/one", nil)
		next := make(chan *Lease)
		go func() { next <- r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) }()
		synctest.Wait()
		if err := l.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		l = <-next
		clk.Suspend(time.Hour)
		time.Sleep(maxSleep)
		r.wantLost(l, Expired)
		resumed, err := l.Resume(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		if err := resumed.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		time.Sleep(2 * engine.Contended)
		synctest.Wait()
		wantNothingLeft(r, c)
	})
}

// TestAKeyPassedOnAtTheEndOfTheWaitIsTaken: the caller waits for the store's
// answer, though its WaitFor ends meanwhile.
func TestAKeyPassedOnAtTheEndOfTheWaitIsTaken(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		var waiting sync.WaitGroup
		waiting.Go(func() { r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: 10 * time.Second}) })
		time.Sleep(9900 * time.Millisecond)
		tap.set(slow(50 * time.Millisecond))
		r.acquire(c, "jobs/two", nil) // so that no caller calls the store itself
		tap.set(slow(1500 * time.Millisecond))
		if err := l.Release(r.Context()); err != nil {
			r.Error(err)
		}
		waiting.Wait()
		tap.set(nil)
	})
}
