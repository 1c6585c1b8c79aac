package croft

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

func TestBadInputNeverReachesTheStore(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		cases := map[string]struct {
			key string
			o   *LeaseOptions
		}{
			"empty key":             {"", nil},
			"key with ..":           {"a/../b", nil},
			"long key":              {strings.Repeat("k", 4096), nil},
			"negative TTL":          {"k", &LeaseOptions{TTL: -1}},
			"endless TTL":           {"k", &LeaseOptions{TTL: 100000 * time.Hour}},
			"negative WaitFor":      {"k", &LeaseOptions{WaitFor: -1}},
			"negative Every":        {"k", &LeaseOptions{Every: -1}},
			"negative HoldFor":      {"k", &LeaseOptions{HoldFor: -1}},
			"negative StallAfter":   {"k", &LeaseOptions{StallAfter: -1}},
			"negative MaxHold":      {"k", &LeaseOptions{MaxHold: -1}},
			"negative MaxFailures":  {"k", &LeaseOptions{MaxFailures: -1}},
			"Notice above half":     {"k", &LeaseOptions{TTL: time.Minute, Notice: 31 * time.Second}},
			"Above beyond its cap":  {"k", &LeaseOptions{Above: tenure.MaxAbove + 1}},
			"a guard that is nil":   {"k", &LeaseOptions{Guards: []guard.Guard{nil}}},
			"more than 16 guards":   {"k", &LeaseOptions{Guards: make([]guard.Guard, 17)}},
			"a key that is control": {"a\nb", nil},
		}
		for name, bad := range cases {
			if _, err := c.Acquire(r.Context(), bad.key, bad.o); !errors.Is(err, ErrInvalid) {
				r.Errorf("%s: %v, want invalid", name, err)
			}
		}
		if len(tap.all()) != 0 {
			r.Error("the store was asked")
		}
	})
}

// TestAnEndedContextAsksTheStoreForNothing: a call whose context has ended does
// not reach the store, unless it is a release.
func TestAnEndedContextAsksTheStoreForNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		tap.forget()
		gone, cancel := context.WithCancel(r.Context())
		cancel()
		for name, err := range map[string]error{
			"Acquire":  errOf(c.Acquire(gone, "jobs/two", nil)),
			"Renew":    errOf(c.Renew(gone, l.Deed(), false)),
			"Report":   l.Report(gone, "x"),
			"Save":     l.Save(gone, []byte("x")),
			"Takeover": errOf(c.Takeover(gone, "jobs/one", ByHand{Note: "x"})),
		} {
			if !errors.Is(err, context.Canceled) {
				r.Errorf("%s: %v, want the end of the context", name, err)
			}
		}
		if len(tap.all()) != 0 {
			r.Errorf("the store was asked: %v", tap.all())
		}
		_ = l.Release(gone)
		synctest.Wait()
		if rec := r.record("jobs/one"); rec.State != tenure.Free {
			r.Errorf("the key is %s", rec.State)
		}
	})
}

// TestAReleaseWakesAWaiterElsewhere: at once if the store gives hints, within a
// poll if it does not.
func TestAReleaseWakesAWaiterElsewhere(t *testing.T) {
	for _, hints := range []bool{true, false} {
		inBubble(t, func(r *rig) {
			holder := r.acquire(r.client(nil, nil), "jobs/one", nil)
			var st store.Store = r.st
			if !hints {
				st = &tap{Store: r.st}
			}
			got := make(chan *Lease, 1)
			c := r.client(st, nil)
			go func() { got <- r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) }()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			start := time.Now()
			if err := holder.Release(r.Context()); err != nil {
				r.Fatal(err)
			}
			l := <-got
			if hints {
				wantAfter(r, start, 0, 0)
			} else {
				wantAfter(r, start, 0, time.Second)
			}
			if l.Record().Cause != tenure.Released {
				r.Errorf("cause %s", l.Record().Cause)
			}
		})
	}
}

// TestHintsThatEndAreReplacedByPolling: a broken watch does not end the wait.
func TestHintsThatEndAreReplacedByPolling(t *testing.T) {
	inBubble(t, func(r *rig) {
		holder := r.acquire(r.client(nil, nil), "jobs/one", nil)
		broken := &shortWatch{tap: tap{Store: r.st}}
		var seen events
		c := r.client(broken, &Options{Observe: seen.observe})
		got := make(chan *Lease, 1)
		go func() { got <- r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) }()
		time.Sleep(30 * time.Second)
		start := time.Now()
		if err := holder.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		<-got
		wantAfter(r, start, 0, time.Second)
		if got := seen.of(EventUnwatched); len(got) != 1 {
			r.Errorf("%d times told that hints have ended, want once", len(got))
		}
	})
}

// TestHintsThatEndedAreTriedAgain: the next head of the queue watches again
// after hints have ended or failed, but not if the store never gives them.
func TestHintsThatEndedAreTriedAgain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int64
	}{{nil, 2}, {errDown, 2}, {errors.ErrUnsupported, 1}} {
		inBubble(t, func(r *rig) {
			holder := r.acquire(r.client(nil, nil), "jobs/one", nil)
			broken := &shortWatch{tap: tap{Store: r.st}, err: c.err}
			client := r.client(broken, nil)
			first, cancel := context.WithTimeout(r.Context(), 30*time.Second)
			defer cancel()
			var both sync.WaitGroup
			both.Go(func() {
				if _, err := client.Acquire(first, "jobs/one", &LeaseOptions{WaitFor: Forever}); !errors.Is(err, context.DeadlineExceeded) {
					r.Error(err)
				}
			})
			synctest.Wait()
			both.Go(func() { r.acquire(client, "jobs/one", &LeaseOptions{WaitFor: Forever}) })
			time.Sleep(time.Minute)
			if n := broken.asked.Load(); n != c.want {
				r.Errorf("asked for hints %d times by two heads after %v, want %d", n, c.err, c.want)
			}
			if err := holder.Release(r.Context()); err != nil {
				r.Fatal(err)
			}
			both.Wait()
		})
	}
}

// shortWatch is a store whose hints end after a second.
type shortWatch struct {
	tap
	asked atomic.Int64
	err   error // the error of Watch, if set
}

func (s *shortWatch) Watch(context.Context, string) (<-chan struct{}, error) {
	s.asked.Add(1)
	if s.err != nil {
		return nil, s.err
	}
	hints := make(chan struct{})
	time.AfterFunc(time.Second, func() { close(hints) })
	return hints, nil
}

// TestLaw9AWaiterFollowsACrashedHolder: within TTL, margin and two polls.
func TestLaw9AWaiterFollowsACrashedHolder(t *testing.T) {
	for _, hints := range []bool{true, false} {
		inBubble(t, func(r *rig) {
			holder := r.client(nil, nil)
			r.acquire(holder, "jobs/one", &LeaseOptions{TTL: 10 * time.Second})
			var st store.Store = r.st
			if !hints {
				st = &tap{Store: r.st}
			}
			c := r.client(st, nil)
			got := make(chan *Lease, 1)
			go func() { got <- r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) }()
			time.Sleep(25 * time.Second)
			// Close releases nothing: to the store it looks like a crash.
			if err := holder.Close(); err != nil {
				r.Fatal(err)
			}
			start := time.Now()
			if l := <-got; l.Record().Cause != tenure.Expired {
				r.Errorf("cause %s", l.Record().Cause)
			}
			wantAfter(r, start, 5*time.Second, 11*time.Second+2*time.Second)
		})
	}
}

// TestLaw6ALostReplyIsNoMystery: whatever happens to the first messages, there
// is one grant in the end, and it is the caller's.
func TestLaw6ALostReplyIsNoMystery(t *testing.T) {
	acquires := func(req tenure.Request) bool { return req.Verb == tenure.Acquire }
	networks := map[string]func(store.Store) store.Store{
		"replies are lost":      func(st store.Store) store.Store { return storetest.DropReply(st, storetest.First(3, acquires)) },
		"requests are lost":     func(st store.Store) store.Store { return storetest.DropRequest(st, storetest.First(3, acquires)) },
		"requests arrive twice": func(st store.Store) store.Store { return storetest.DeliverTwice(st, storetest.First(3, acquires)) },
		"the first reply hangs": func(st store.Store) store.Store { return &hangFirst{Store: st} },
		"both at the same time": func(st store.Store) store.Store {
			return storetest.DropReply(storetest.DeliverTwice(st, nil), storetest.First(2, acquires))
		},
		"lost, on the way there and back": func(st store.Store) store.Store {
			return storetest.DropReply(storetest.DropRequest(st, storetest.First(2, acquires)), storetest.First(4, acquires))
		},
	}
	for name, network := range networks {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				l := r.acquire(r.client(network(r.st), nil), "jobs/one", nil)
				rec := r.record("jobs/one")
				if rec.Terms != 1 || rec.Token != l.Token() || rec.Grant != l.Stamp().Grant || !rec.Alive(time.Now()) {
					r.Errorf("the store has %d terms, token %d; the lease has token %d", rec.Terms, rec.Token, l.Token())
				}
				if local, at := l.Remaining(), time.Until(rec.Deadline); local > at {
					r.Errorf("%s remain locally, %s at the store", local, at)
				}
			})
		})
	}
}

// hangFirst applies the first batch and delays its reply for a long time.
type hangFirst struct {
	store.Store
	hung atomic.Bool
}

func (s *hangFirst) Apply(ctx context.Context, batch []tenure.Request) []store.Answer {
	answers := s.Store.Apply(ctx, batch)
	if s.hung.CompareAndSwap(false, true) {
		return hang(ctx, batch)
	}
	return answers
}

// TestLaw6AnAbandonedAcquireIsReleased: the caller leaves while its request is
// in flight, and the request is granted. The key is free again soon, long
// before it would have lapsed.
func TestLaw6AnAbandonedAcquireIsReleased(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(only(tenure.Acquire, func(ctx context.Context, batch []tenure.Request) []store.Answer {
			answers := r.st.Apply(ctx, batch)
			time.Sleep(2 * time.Second) // the reply is slow
			return answers
		}))
		var seen events
		c := r.client(tap, &Options{Observe: seen.observe})
		ctx, cancel := context.WithTimeout(r.Context(), time.Second/2)
		defer cancel()
		_, err := c.Acquire(ctx, "jobs/one", nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnknown) {
			r.Fatalf("%v, want the end of the context and that the outcome is unknown", err)
		}
		if rec := r.record("jobs/one"); !rec.Alive(time.Now()) {
			r.Fatal("the request was not granted: the test shows nothing")
		}
		if err := c.Close(); err != nil {
			r.Errorf("Close, which waits for the release: %v", err)
		}
		rec := r.record("jobs/one")
		if rec.State != tenure.Free || rec.Ended != tenure.EndFailed {
			r.Errorf("the key is %s, ended %q; want it released as failed", rec.State, rec.Ended)
		}
		if got := seen.of(EventResolved); len(got) != 1 || got[0].Outcome != OutcomeReleased {
			r.Errorf("resolved as %+v, want once, as released", got)
		}
	})
}

// TestLaw6AGrantThatArrivesLateIsReleased: the request reaches the store after
// the caller has left.
func TestLaw6AGrantThatArrivesLateIsReleased(t *testing.T) {
	inBubble(t, func(r *rig) {
		late := storetest.DeliverLate(r.st, func(req tenure.Request) bool { return req.Verb == tenure.Acquire })
		c := r.client(late, nil)
		ctx, cancel := context.WithTimeout(r.Context(), time.Second/2)
		defer cancel()
		if _, err := c.Acquire(ctx, "jobs/one", nil); !errors.Is(err, ErrUnknown) {
			r.Fatalf("%v, want unknown", err)
		}
		time.Sleep(2 * time.Second)
		late.Deliver(r.Context())
		if rec := r.record("jobs/one"); !rec.Alive(time.Now()) {
			r.Fatal("nothing was granted: the test shows nothing")
		}
		time.Sleep(2 * time.Second)
		if rec := r.record("jobs/one"); rec.State != tenure.Free {
			r.Errorf("the key is still %s", rec.State)
		}
	})
}

// TestLaw6AnUnreachableStoreGivesNoAuthority: the caller gets neither a lease
// nor a refusal, and Close does not hang.
func TestLaw6AnUnreachableStoreGivesNoAuthority(t *testing.T) {
	for name, fault := range map[string]func(context.Context, []tenure.Request) []store.Answer{"down": down, "hanging": hang} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				tap := &tap{Store: r.st}
				tap.set(fault)
				c := r.client(tap, nil)
				start := time.Now()
				_, err := c.Acquire(r.Context(), "jobs/one", nil)
				if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrHeld) {
					r.Errorf("%v, want unknown", err)
				}
				wantAfter(r, start, 5*time.Second, 6*time.Second)
				start = time.Now()
				if err := c.Close(); !errors.Is(err, ErrUnknown) {
					r.Errorf("Close: %v, want to be told that something was left open", err)
				}
				wantAfter(r, start, 2*time.Second, 5*time.Second)
			})
		})
	}
}

// TestAWaiterOutlastsAnOutage: the wait goes on while the store is away.
func TestAWaiterOutlastsAnOutage(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(down)
		time.AfterFunc(30*time.Second, func() { tap.set(nil) })
		start := time.Now()
		r.acquire(r.client(tap, nil), "jobs/one", &LeaseOptions{WaitFor: time.Minute})
		wantAfter(r, start, 30*time.Second, 31*time.Second)
	})
}

func TestWaitForBoundsTheWait(t *testing.T) {
	inBubble(t, func(r *rig) {
		l := r.acquire(r.client(nil, nil), "jobs/one", nil)
		c := r.client(&tap{Store: r.st}, nil)
		for _, patience := range []time.Duration{0, 40 * time.Millisecond, 2 * time.Second, 5 * time.Minute} {
			start := time.Now()
			_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: patience})
			var held *tenure.HeldError
			if !errors.As(err, &held) || held.Record.Token != l.Token() {
				r.Errorf("waiting %s: %v, want to be told who holds it", patience, err)
			}
			wantAfter(r, start, patience, patience)
		}
	})
}

// TestAReservationIsForItsOwner: nobody else gets the key until the reservation
// lapses.
func TestAReservationIsForItsOwner(t *testing.T) {
	inBubble(t, func(r *rig) {
		if _, err := r.client(nil, nil).Reserve(r.Context(), "jobs/one", "ana@box2", ByHand{Actor: "op", Note: "hand over"}); err != nil {
			r.Fatal(err)
		}
		var held *tenure.HeldError
		if _, err := r.client(nil, &Options{Owner: "bob@box1"}).Acquire(r.Context(), "jobs/one", nil); !errors.As(err, &held) || held.Why != tenure.WhyReserved {
			r.Errorf("another owner: %v, want reserved", err)
		}
		if l := r.acquire(r.client(nil, &Options{Owner: "ana@box2"}), "jobs/one", nil); l.Record().Cause != tenure.Handoff {
			r.Errorf("cause %s", l.Record().Cause)
		}
	})
}

// TestManyClientsOneKey: every grant is exclusive and tokens rise, whichever
// client wins.
func TestManyClientsOneKey(t *testing.T) {
	inBubble(t, func(r *rig) {
		var (
			mu     sync.Mutex
			inside int
			last   int64
			all    sync.WaitGroup
		)
		for i := range 8 {
			c := r.client(nil, &Options{Owner: fmt.Sprint("box", i)})
			for range 4 {
				all.Go(func() {
					for range 5 {
						l := r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever})
						mu.Lock()
						inside++
						if inside != 1 || int64(l.Token()) <= last {
							r.Errorf("%d inside, token %d after %d", inside, l.Token(), last)
						}
						last = int64(l.Token())
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						inside--
						mu.Unlock()
						if err := l.Release(r.Context()); err != nil {
							r.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
	})
}
