package croft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestEveryLossHasItsCause: the context ends at the right time, with a typed
// cause.
func TestEveryLossHasItsCause(t *testing.T) {
	minute := &LeaseOptions{TTL: time.Minute}
	cases := []struct {
		loss  Loss
		o     *LeaseOptions
		cause func(r *rig, c *Client, tap *tap, l *Lease)
		least time.Duration // counted from the grant
		most  time.Duration
	}{
		{Released, minute, func(r *rig, _ *Client, _ *tap, l *Lease) {
			if err := l.Release(r.Context()); err != nil {
				r.Error(err)
			}
		}, 0, 0},
		{Closed, minute, func(r *rig, c *Client, _ *tap, _ *Lease) {
			if err := c.Close(); err != nil {
				r.Error(err)
			}
		}, 0, 0},
		{TakenOver, minute, func(r *rig, _ *Client, _ *tap, l *Lease) {
			if _, err := r.client(nil, nil).Revoke(r.Context(), l.Key(), ByHand{Actor: "ana", Note: "wrong input"}); err != nil {
				r.Error(err)
			}
		}, 15 * time.Second, 20 * time.Second},
		{Superseded, minute, func(r *rig, _ *Client, _ *tap, l *Lease) {
			r.st.Wipe() // the store forgets the key, and another client takes it
			r.acquire(r.client(nil, nil), l.Key(), nil)
		}, 15 * time.Second, 20 * time.Second},
		{Unreachable, minute, func(_ *rig, _ *Client, tap *tap, _ *Lease) { tap.set(down) }, 53 * time.Second, 54 * time.Second},
		{Unreachable, minute, func(_ *rig, _ *Client, tap *tap, _ *Lease) { tap.set(hang) }, 53 * time.Second, 54 * time.Second},
		{Unreachable, &LeaseOptions{TTL: time.Minute, MaxFailures: 1}, func(_ *rig, _ *Client, tap *tap, _ *Lease) { tap.set(down) }, 35 * time.Second, 40 * time.Second},
		{Unreachable, &LeaseOptions{TTL: time.Minute, Notice: 20 * time.Second}, func(_ *rig, _ *Client, tap *tap, _ *Lease) { tap.set(hang) }, 33 * time.Second, 34 * time.Second},
		{Stalled, &LeaseOptions{TTL: time.Minute, StallAfter: 30 * time.Second}, func(*rig, *Client, *tap, *Lease) {}, 68 * time.Second, 74 * time.Second},
		{HeldTooLong, &LeaseOptions{TTL: time.Minute, MaxHold: 100 * time.Second}, func(*rig, *Client, *tap, *Lease) {}, 100 * time.Second, 100 * time.Second},
	}
	for _, c := range cases {
		t.Run(string(c.loss), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				tap := &tap{Store: r.st}
				client := r.client(tap, nil)
				start := time.Now()
				l := r.acquire(client, "jobs/one", c.o)
				if err := l.Err(); err != nil {
					r.Fatalf("a new lease says %v", err)
				}
				c.cause(r, client, tap, l)
				r.wantLost(l, c.loss)
				lost := l.Err()
				wantAfter(r, start, c.least, c.most)
				if c.loss == Unreachable && !errors.Is(lost, store.ErrUnknown) {
					r.Errorf("the loss does not say what the store's calls came to: %v", lost)
				}
				if (c.loss == TakenOver || c.loss == Superseded) && !errors.Is(lost, ErrNotOwned) {
					r.Errorf("the loss does not say who owns the key: %v", lost)
				}
			})
		})
	}
}

// TestLaw5ASuspendEndsTheLease: the machine sleeps past the deadline, and no
// timer of the process runs meanwhile. Within a second of its waking the
// context ends. Err is right at once.
func TestLaw5ASuspendEndsTheLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, clk := r.sleeper(nil, nil)
		l := r.acquire(c, "jobs/one", nil)
		asked := r.acquire(c, "jobs/two", nil)
		time.Sleep(10 * time.Second)
		clk.Suspend(time.Hour)
		if left := l.Remaining(); left > 0 {
			r.Errorf("%s remain after an hour's sleep", left)
		}
		if err := asked.Err(); !errors.Is(err, ErrLost) || lossIn(err) != Expired {
			r.Errorf("asked at once, the lease says %v, want that it has expired", err)
		}
		woken := time.Now()
		r.wantLost(l, Expired)
		wantAfter(r, woken, 0, time.Second)
	})
}

// TestAShortSuspendEndsNothing: a sleep that leaves time to renew does no harm.
// Observers learn of it.
func TestAShortSuspendEndsNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		var seen events
		c, clk := r.sleeper(nil, &Options{Observe: seen.observe})
		l := r.acquire(c, "jobs/one", nil)
		time.Sleep(10 * time.Second)
		clk.Suspend(30 * time.Second)
		time.Sleep(2 * time.Second)
		if err := l.Err(); err != nil {
			r.Error(err)
		}
		if left := l.Remaining(); left < 50*time.Second {
			r.Errorf("%s remain, want the renewal that was due to have been sent on waking", left)
		}
		if told := seen.of(EventPaused); len(told) != 1 || told[0].Took < 29*time.Second || told[0].Took > 31*time.Second {
			r.Errorf("told of the pause by %+v", told)
		}
	})
}

// TestALeaseTakenAfterASuspendIsRenewedInTime: even a short one, though the
// timers have stood still and the client still waits for one of them.
func TestALeaseTakenAfterASuspendIsRenewedInTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, clk := r.sleeper(nil, nil)
		r.acquire(c, "jobs/long", &LeaseOptions{TTL: time.Hour})
		time.Sleep(maxSleep / 2)
		clk.Suspend(time.Minute)
		l := r.acquire(c, "jobs/short", &LeaseOptions{TTL: maxSleep / 4})
		time.Sleep(2 * maxSleep)
		if err := l.Err(); err != nil {
			r.Error(err)
		}
	})
}

// TestAHangingRenewalDoesNotHoldTheLease: the context ends in time while calls
// of the store hang forever, and the client can still be closed.
func TestAHangingRenewalDoesNotHoldTheLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, &Options{CallTimeout: time.Hour})
		start := time.Now()
		l := r.acquire(c, "jobs/one", &LeaseOptions{TTL: 10 * time.Second})
		tap.set(hang)
		r.wantLost(l, Unreachable)
		wantAfter(r, start, 8*time.Second, 9*time.Second)
		if rec := r.record("jobs/one"); !rec.Alive(time.Now()) {
			r.Error("the store had let go of the key before the holder did")
		}
	})
}

// TestTheContextCarriesValuesAndNotTheEndOfAcquire: the context passed to
// Acquire limits Acquire, not the lease.
func TestTheContextCarriesValuesAndNotTheEndOfAcquire(t *testing.T) {
	inBubble(t, func(r *rig) {
		type name struct{}
		ctx, cancel := context.WithCancel(context.WithValue(r.Context(), name{}, "trace"))
		l, err := r.client(nil, nil).Acquire(ctx, "jobs/one", nil)
		if err != nil {
			r.Fatal(err)
		}
		cancel()
		time.Sleep(5 * time.Minute)
		if l.Err() != nil || l.Context().Value(name{}) != "trace" {
			r.Errorf("the lease says %v, its context's value is %v", l.Err(), l.Context().Value(name{}))
		}
	})
}

// TestAContextAskedForLateTellsTheLoss: the context is made at the first call
// of Context, which may come after the end of the lease.
func TestAContextAskedForLateTellsTheLoss(t *testing.T) {
	inBubble(t, func(r *rig) {
		l := r.acquire(r.client(nil, nil), "jobs/one", nil)
		if err := l.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		r.wantLost(l, Released)
		if first := l.Context(); first != l.Context() {
			r.Error("every call makes another")
		}
	})
}

// TestAContextWantedAsTheLeaseEndsEndsWithIt: several callers ask for the
// context while the lease ends. There is one context and one cause.
func TestAContextWantedAsTheLeaseEndsEndsWithIt(t *testing.T) {
	ends := map[Loss]func(r *rig, c *Client, l *Lease){
		Released: func(r *rig, _ *Client, l *Lease) { _ = l.Release(r.Context()) },
		Closed:   func(_ *rig, c *Client, _ *Lease) { _ = c.Close() },
		Expired: func(_ *rig, c *Client, l *Lease) {
			c.clk.(*clock.Process).Suspend(time.Hour)
			_ = l.Err()
		},
		TakenOver: func(r *rig, c *Client, l *Lease) {
			_, _ = c.Takeover(r.Context(), l.Key(), ByHand{Note: "x"})
			_ = l.Report(r.Context(), "too late")
		},
	}
	for loss, end := range ends {
		t.Run(string(loss), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				for range 50 {
					c := r.client(nil, nil)
					l := r.acquire(c, "jobs/one", nil)
					var all sync.WaitGroup
					var seen [3]<-chan struct{}
					for i := range seen {
						all.Go(func() {
							for range rand.IntN(20) {
								runtime.Gosched()
							}
							seen[i] = l.Done()
							<-seen[i]
						})
					}
					all.Go(func() { end(r, c, l) })
					all.Wait()
					if seen[0] != seen[1] || seen[1] != seen[2] {
						r.Fatal("there are several contexts")
					}
					r.wantLost(l, loss)
					if err := l.Release(l.Context()); err != nil && loss != Closed && loss != TakenOver {
						r.Fatal(err)
					}
					if err := c.Close(); err != nil {
						r.Fatal(err)
					}
					time.Sleep(time.Hour) // leases that were not released lapse
				}
			})
		})
	}
}

// TestProgressKeepsALeaseFromStalling: reported by this process, or by another
// process with the deed. A checkpoint counts like a report.
func TestProgressKeepsALeaseFromStalling(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		inBubble(t, func(r *rig) {
			l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{TTL: time.Minute, StallAfter: 30 * time.Second})
			other := r.client(nil, nil)
			for n := range 20 {
				time.Sleep(25 * time.Second)
				var err error
				switch {
				case n%2 == 0 && elsewhere:
					_, err = other.Save(r.Context(), l.Deed(), []byte{byte(n)})
				case n%2 == 0:
					err = l.Save(r.Context(), []byte{byte(n)})
				case elsewhere:
					_, err = other.Report(r.Context(), l.Deed(), "step")
				default:
					err = l.Report(r.Context(), "step")
				}
				if err != nil {
					r.Fatal(err)
				}
			}
			if err := l.Err(); err != nil {
				r.Errorf("reported elsewhere: %v: %v", elsewhere, err)
			}
			synctest.Wait()
			if rec := l.Record(); rec.Progress != "step" {
				r.Errorf("the lease's record shows progress %q", rec.Progress)
			}
		})
	}
}

// TestManyLeasesAreLookedAtInTime: their work runs elsewhere and has reported
// to the store in time, but reading the records takes a while.
func TestManyLeasesAreLookedAtInTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &slowReads{Store: r.st}
		c, elsewhere := r.client(st, nil), r.client(nil, nil)
		leases := make([]*Lease, 400)
		for i := range leases {
			leases[i] = r.acquire(c, fmt.Sprint("jobs/", i), &LeaseOptions{TTL: time.Minute, StallAfter: 30 * time.Second})
		}
		for range 8 {
			time.Sleep(25 * time.Second)
			for _, l := range leases {
				if _, err := elsewhere.Report(r.Context(), l.Deed(), "on the way"); err != nil {
					r.Fatal(err)
				}
			}
		}
		if st.reads.Load() == 0 {
			r.Error("no record was looked at")
		}
	})
}

// slowReads is a store that takes a while to read a record.
type slowReads struct {
	store.Store
	reads atomic.Int64
}

func (s *slowReads) Get(ctx context.Context, key string) (tenure.Record, error) {
	s.reads.Add(1)
	time.Sleep(200 * time.Millisecond)
	return s.Store.Get(ctx, key)
}

// TestReportOnALostLeaseSaysSo: the store's refusal ends the lease at once, and
// Report returns the loss.
func TestReportOnALostLeaseSaysSo(t *testing.T) {
	inBubble(t, func(r *rig) {
		l := r.acquire(r.client(nil, nil), "jobs/one", nil)
		if _, err := r.client(nil, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "box1 hangs"}); err != nil {
			r.Fatal(err)
		}
		if err := l.Report(r.Context(), "half way"); lossIn(err) != TakenOver || !errors.Is(err, ErrNotOwned) {
			r.Errorf("Report says %v, want that the lease was taken over", err)
		}
		r.wantLost(l, TakenOver)
		if err := l.Report(r.Context(), "all the way"); !errors.Is(err, ErrLost) {
			r.Errorf("Report on a lease known to be lost says %v", err)
		}
		if left := l.Remaining(); left > 0 {
			r.Errorf("%s remain of a lease that was taken over", left)
		}
	})
}

// TestNoticeLeavesTimeToStop: the context ends before the deadline.
func TestNoticeLeavesTimeToStop(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		l := r.acquire(r.client(tap, nil), "jobs/one", &LeaseOptions{TTL: time.Minute, Notice: 20 * time.Second})
		tap.set(down)
		r.wantLost(l, Unreachable)
		if left := l.Remaining(); left < 19*time.Second || left > 20*time.Second {
			r.Errorf("%s remain when the context ends, want the notice", left)
		}
	})
}

// TestAReportCountsThoughItsCallerHasGone: progress counts even if the store
// could not be told.
func TestAReportCountsThoughItsCallerHasGone(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := &LeaseOptions{TTL: time.Minute, StallAfter: 30 * time.Second}
		l := r.acquire(r.client(nil, nil), "jobs/one", o)
		over, cancel := context.WithCancel(r.Context())
		cancel()
		for range 30 {
			time.Sleep(10 * time.Second)
			if err := l.Report(over, "still here"); !errors.Is(err, context.Canceled) {
				r.Errorf("%v, want canceled", err)
			}
		}
		if err := l.Err(); err != nil {
			r.Errorf("the work reported every 10s: %v", err)
		}
	})
}

// hangsOn is a store that never finishes reading the record of one key.
type hangsOn struct {
	*tap
	key string
}

func (s hangsOn) Get(ctx context.Context, key string) (tenure.Record, error) {
	if key == s.key {
		<-ctx.Done()
		return tenure.Record{}, ctx.Err()
	}
	return s.tap.Get(ctx, key)
}

// TestARecordThatCannotBeReadCostsNoOtherLease: before a lease ends as stalled,
// its record is read, because another process may have reported.
func TestARecordThatCannotBeReadCostsNoOtherLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, other := r.client(hangsOn{&tap{Store: r.st}, "jobs/bad"}, nil), r.client(nil, nil)
		o := &LeaseOptions{TTL: 6 * time.Second, StallAfter: 1500 * time.Millisecond}
		r.acquire(c, "jobs/bad", o)
		var leases []*Lease
		for i := range 200 {
			leases = append(leases, r.acquire(c, fmt.Sprint("jobs/", i), o))
		}
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			for _, l := range leases {
				if _, err := other.Report(r.Context(), l.Deed(), "half"); err != nil {
					r.Fatal(err)
				}
			}
		}
		for _, l := range leases {
			if err := l.Err(); err != nil {
				r.Error(err)
			}
		}
	})
}

// TestDoTellsALossOnce: though both the work and the lease return it.
func TestDoTellsALossOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		err := r.client(nil, nil).Do(r.Context(), "jobs/one", nil, func(ctx context.Context, l *Lease) error {
			if _, err := r.client(nil, nil).Takeover(ctx, "jobs/one", ByHand{Note: "x"}); err != nil {
				return err
			}
			return l.Report(context.WithoutCancel(ctx), "half")
		})
		if !errors.Is(err, ErrLost) || strings.Count(err.Error(), "lease lost") != 1 {
			r.Errorf("%v, want one loss", err)
		}
	})
}
