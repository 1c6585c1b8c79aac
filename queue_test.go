package croft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/tenure"
)

// TestContendersAreServedInOrder: first come, first served, within a client.
func TestContendersAreServedInOrder(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		holder := r.acquire(c, "jobs/one", nil)
		const many = 50
		var (
			mu     sync.Mutex
			served []int
			want   []int
			all    sync.WaitGroup
		)
		for i := range many {
			want = append(want, i)
			all.Go(func() {
				l := r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever})
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				if err := l.Release(r.Context()); err != nil {
					r.Error(err)
				}
			})
			synctest.Wait() // it has joined the queue before the next comes
		}
		start := time.Now()
		if err := holder.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		all.Wait()
		if !slices.Equal(served, want) {
			r.Errorf("served in the order %v", served)
		}
		// Each gets the key the moment the one before has released it.
		wantAfter(r, start, many*time.Millisecond, many*time.Millisecond)
	})
}

// TestAThousandWaitersAreOneToTheStore: they cost the store no more requests
// than one.
func TestAThousandWaitersAreOneToTheStore(t *testing.T) {
	asked := func(waiters int) (requests int) {
		inBubble(t, func(r *rig) {
			r.acquire(r.client(nil, nil), "jobs/one", nil) // another process
			tap := &tap{Store: r.st}
			c := r.client(tap, nil)
			ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for range waiters {
				all.Go(func() {
					if _, err := c.Acquire(ctx, "jobs/one", &LeaseOptions{WaitFor: Forever}); !errors.Is(err, context.DeadlineExceeded) {
						r.Errorf("%v, want the end of the context", err)
					}
				})
			}
			synctest.Wait()
			time.Sleep(59 * time.Second)
			requests, _ = tap.count(tenure.Acquire)
			all.Wait()
		})
		return requests
	}
	one, many := asked(1), asked(1000)
	if many != one || one < 30 {
		t.Errorf("in a minute the store was asked %d times by 1000 waiters, %d times by one", many, one)
	}
}

func TestWaitForLimitsTheWaitInTheQueue(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		r.acquire(c, "jobs/one", nil)
		start := time.Now()
		_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: 3 * time.Second})
		wantAfter(r, start, 3*time.Second, 3*time.Second)
		var held *tenure.HeldError
		if !errors.As(err, &held) || held.Record.Owner != c.o.Owner {
			r.Errorf("%v, want to be told who holds it", err)
		}
	})
}

// TestTimeInTheQueueIsPartOfTheWait: a caller that becomes the head does not
// begin its WaitFor anew.
func TestTimeInTheQueueIsPartOfTheWait(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.acquire(r.client(nil, nil), "jobs/one", nil)
		c := r.client(nil, nil)
		var all sync.WaitGroup
		for _, patience := range []time.Duration{3 * time.Second, 5 * time.Second} {
			all.Go(func() {
				start := time.Now()
				if _, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: patience}); !errors.Is(err, ErrHeld) {
					r.Errorf("%v, want held", err)
				}
				wantAfter(r, start, patience, patience)
			})
			synctest.Wait()
		}
		all.Wait()
	})
}

// TestAWaiterWhoseTimeIsUpIsToldThatTheKeyIsHeld: also if the key is passed on
// at that moment. The store can be reached, so nothing is unknown.
func TestAWaiterWhoseTimeIsUpIsToldThatTheKeyIsHeld(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(slow(5 * time.Millisecond))
		c := r.client(tap, nil)
		var all sync.WaitGroup
		var granted, held atomic.Int64
		for i := range 20 {
			all.Go(func() {
				for range 50 {
					start := time.Now()
					wait := time.Duration(10+i) * time.Millisecond
					l, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: wait})
					wantAfter(r, start, 0, wait+20*time.Millisecond)
					switch {
					case err == nil:
						granted.Add(1)
						time.Sleep(time.Millisecond)
						if err := l.Release(r.Context()); err != nil {
							r.Error(err)
						}
					case errors.Is(err, ErrHeld):
						held.Add(1)
					default:
						r.Error(err)
					}
				}
			})
		}
		all.Wait()
		if granted.Load() == 0 || held.Load() == 0 {
			r.Errorf("%d were granted the key and %d refused, want some of both", granted.Load(), held.Load())
		}
	})
}

func TestTheContextLimitsTheWaitInTheQueue(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		r.acquire(c, "jobs/one", nil)
		ctx, cancel := context.WithTimeoutCause(r.Context(), 3*time.Second, errors.New("the boss is impatient"))
		defer cancel()
		start := time.Now()
		_, err := c.Acquire(ctx, "jobs/one", &LeaseOptions{WaitFor: Forever})
		wantAfter(r, start, 3*time.Second, 3*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, context.Cause(ctx)) {
			r.Errorf("%v, want the end of the context and its cause", err)
		}
	})
}

// TestOneTryNextToALocalHolder: it asks the store once, because an operator may
// have ended the lease that this client still believes in.
func TestOneTryNextToALocalHolder(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		time.Sleep(5 * time.Second)
		tap.forget()
		_, err := c.Acquire(r.Context(), "jobs/one", nil)
		var held *tenure.HeldError
		if !errors.As(err, &held) || held.Record.Token != l.Token() || held.Why != tenure.WhyHeld {
			r.Fatalf("%v, want to be told of the lease with token %d", err, l.Token())
		}
		if left := held.Remaining(); left < 54*time.Second || left > 56*time.Second {
			r.Errorf("told that it is held for another %s, want 55s", left)
		}
		if n, _ := tap.count(tenure.Acquire); n != 1 {
			r.Errorf("the store was asked %d times, want once", n)
		}
	})
}

// TestOneTryBehindAWaiter: it gets the answer of the head of the queue, and
// does not overtake it.
func TestOneTryBehindAWaiter(t *testing.T) {
	inBubble(t, func(r *rig) {
		elsewhere := r.acquire(r.client(nil, nil), "jobs/one", nil)
		c := r.client(nil, nil)
		got := make(chan *Lease, 1)
		go func() { got <- r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) }()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		start := time.Now()
		_, err := c.Acquire(r.Context(), "jobs/one", nil)
		var held *tenure.HeldError
		if !errors.As(err, &held) || held.Record.Token != elsewhere.Token() {
			r.Errorf("%v, want to be told of the lease with token %d", err, elsewhere.Token())
		}
		wantAfter(r, start, 0, 0)
		if err := elsewhere.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		<-got
	})
}

// TestALostLeaseLetsTheNextWaiterAsk: its work may still run, but the next
// waiter may ask the store.
func TestALostLeaseLetsTheNextWaiterAsk(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		lost := r.acquire(c, "jobs/one", &LeaseOptions{TTL: 10 * time.Second, MaxHold: 30 * time.Second})
		start := time.Now()
		l := r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever})
		r.wantLost(lost, HeldTooLong)
		wantAfter(r, start, 30*time.Second, 41*time.Second)
		if l.Token() <= lost.Token() || l.Record().Cause != tenure.Expired {
			r.Errorf("token %d after %d, cause %s", l.Token(), lost.Token(), l.Record().Cause)
		}
	})
}

// TestALeaseReleasedElsewhereLetsTheNextWaiterAsk: as soon as the client
// notices the release, even if the work that held the lease still runs.
func TestALeaseReleasedElsewhereLetsTheNextWaiterAsk(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		given := r.acquire(c, "jobs/one", &LeaseOptions{TTL: 30 * time.Second})
		if _, err := r.client(nil, nil).Release(r.Context(), given.Deed(), false); err != nil {
			r.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if _, err := c.Acquire(ctx, "jobs/one", &LeaseOptions{WaitFor: Forever}); err != nil {
			r.Fatal(err)
		}
		wantAfter(r, start, 0, 11*time.Second)
		r.wantLost(given, Released)
	})
}

// TestAfterASuspendOneTryAsksTheStore: an expired lease refuses nobody, even if
// its end has not been noticed yet.
func TestAfterASuspendOneTryAsksTheStore(t *testing.T) {
	inBubble(t, func(r *rig) {
		var slept atomic.Int64
		r.st = mem.New(&mem.Options{Now: func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }})
		c, clk := r.sleeper(nil, nil)
		r.acquire(c, "jobs/one", nil)
		time.Sleep(100 * time.Millisecond)
		clk.Suspend(time.Hour)
		slept.Store(int64(time.Hour))
		r.acquire(c, "jobs/one", nil)
	})
}

// TestAWaiterThatLeavesBlocksNobody: wherever in the queue it was.
func TestAWaiterThatLeavesBlocksNobody(t *testing.T) {
	inBubble(t, func(r *rig) {
		elsewhere := r.acquire(r.client(nil, nil), "jobs/one", nil)
		c := r.client(nil, nil)
		var all sync.WaitGroup
		for range 3 { // the head leaves, then the next, then the last
			ctx, cancel := context.WithCancel(r.Context())
			all.Go(func() {
				if _, err := c.Acquire(ctx, "jobs/one", &LeaseOptions{WaitFor: Forever}); !errors.Is(err, context.Canceled) {
					r.Errorf("%v, want the end of the context", err)
				}
			})
			synctest.Wait()
			defer cancel()
			time.AfterFunc(time.Second, cancel)
		}
		got := make(chan *Lease, 1)
		go func() { got <- r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) }()
		all.Wait()
		if err := elsewhere.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		start := time.Now()
		if err := (<-got).Release(r.Context()); err != nil {
			r.Error(err)
		}
		wantAfter(r, start, 0, 0) // the store's hint comes at once
		wantNothingLeft(r, c)
	})
}

// TestAHangingHeadDoesNotSpeakForTheOthers: they wait until their own WaitFor
// ends, and then the outcome is unknown.
func TestAHangingHeadDoesNotSpeakForTheOthers(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(hang)
		c := r.client(tap, nil)
		var all sync.WaitGroup
		for _, patience := range []time.Duration{20 * time.Second, 3 * time.Second, 0} {
			all.Go(func() {
				_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: patience})
				if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrHeld) {
					r.Errorf("waiting %s: %v, want unknown", patience, err)
				}
			})
			synctest.Wait()
		}
		start := time.Now()
		all.Wait()
		wantAfter(r, start, 20*time.Second, 22*time.Second)
	})
}

// TestAnEarlierHolderIsNotNamedAsTheHolder: an old refusal, from before this
// client's own lease, must not be repeated while that lease is slowly released.
func TestAnEarlierHolderIsNotNamedAsTheHolder(t *testing.T) {
	inBubble(t, func(r *rig) {
		before := r.acquire(r.client(nil, &Options{Owner: "before"}), "jobs/one", nil)
		tap := &tap{Store: r.st}
		c := r.client(tap, &Options{Owner: "here"})
		var all sync.WaitGroup
		all.Go(func() {
			l := r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever})
			time.Sleep(time.Minute)
			tap.set(slow(500 * time.Millisecond))
			if err := l.Release(r.Context()); err != nil {
				r.Error(err)
			}
		})
		time.Sleep(time.Second)
		if err := before.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		all.Go(func() { r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) })
		synctest.Wait()
		for released, _ := tap.count(tenure.Release); released == 0; released, _ = tap.count(tenure.Release) {
			time.Sleep(time.Millisecond)
		}
		_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: time.Millisecond})
		var held *tenure.HeldError
		if !errors.As(err, &held) || held.Record.Owner != "here" {
			r.Errorf("%v, want that it is held here", err)
		}
		all.Wait()
	})
}

// TestAClientWhoseLeaseWasTakenAwayGetsTheKeyLikeAnybodyElse: it asks the store
// before it refuses, even if it still believes in its own lease.
func TestAClientWhoseLeaseWasTakenAwayGetsTheKeyLikeAnybodyElse(t *testing.T) {
	for name, away := range map[string]func(r *rig, operator *Client, l *Lease) error{
		"revoked": func(r *rig, operator *Client, l *Lease) error {
			return errOf(operator.Revoke(r.Context(), l.Key(), ByHand{Note: "x"}))
		},
		"reserved for it": func(r *rig, operator *Client, l *Lease) error {
			return errOf(operator.Reserve(r.Context(), l.Key(), "ana", ByHand{Note: "x"}))
		},
		"released elsewhere": func(r *rig, operator *Client, l *Lease) error {
			return errOf(operator.Release(r.Context(), l.Deed(), false))
		},
	} {
		for _, patience := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(name, ", waiting ", patience), func(t *testing.T) {
				inBubble(t, func(r *rig) {
					c := r.client(nil, &Options{Owner: "ana"})
					l := r.acquire(c, "jobs/one", nil)
					if err := away(r, r.client(nil, nil), l); err != nil {
						r.Fatal(err)
					}
					start := time.Now()
					next := r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: patience})
					wantAfter(r, start, 0, 2*time.Second) // not only at the next renewal, after 20 s
					if next.Token() <= l.Token() {
						r.Errorf("token %d after %d", next.Token(), l.Token())
					}
				})
			})
		}
	}
}

// TestOneTryBehindAWaiterWithAnotherPeriod: it is refused for its own period,
// in few requests.
func TestOneTryBehindAWaiterWithAnotherPeriod(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		const short, long = 2 * time.Hour, 4 * time.Hour
		if err := r.acquire(c, "jobs/one", &LeaseOptions{Every: short}).Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		ctx, cancel := context.WithCancel(r.Context())
		var all sync.WaitGroup
		for _, every := range []time.Duration{short, long} {
			all.Go(func() {
				_, _ = c.Acquire(ctx, "jobs/one", &LeaseOptions{Every: every, WaitFor: Forever})
			})
			time.Sleep(time.Minute)
		}
		tap.forget()
		tap.set(slow(time.Millisecond))
		_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{Every: long})
		if n, _ := tap.count(tenure.Acquire); !errors.Is(err, ErrHeld) || n > 3 {
			r.Errorf("after %d requests: %v", n, err)
		}
		cancel()
		all.Wait()
	})
}
