package croft

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

func TestReleaseTellsTheStoreHowItWent(t *testing.T) {
	for _, failed := range []bool{false, true} {
		inBubble(t, func(r *rig) {
			var seen events
			c := r.client(nil, &Options{Observe: seen.observe})
			l := r.acquire(c, "jobs/one", &LeaseOptions{HoldFor: time.Hour})
			time.Sleep(3 * time.Second)
			end, want := l.Release, tenure.EndReleased
			if failed {
				end, want = l.Fail, tenure.EndFailed
			}
			if err := end(r.Context()); err != nil {
				r.Fatal(err)
			}
			if rec := r.record("jobs/one"); rec.State != tenure.Free || rec.Ended != want {
				r.Errorf("the key is %s, ended %q, want %q", rec.State, rec.Ended, want)
			}
			_, err := c.Acquire(r.Context(), "jobs/one", nil)
			if held := errors.Is(err, ErrHeld); held == failed {
				r.Errorf("failed: %v; the next acquire says %v: the hold applies after success alone", failed, err)
			}
			if got := seen.of(EventReleased); len(got) != 1 || got[0].Failed != failed || got[0].Held != 3*time.Second {
				r.Errorf("released: %+v", got)
			}
			if got := seen.of(EventLost); len(got) != 0 {
				r.Errorf("a release was told as a loss: %+v", got)
			}
		})
	}
}

func TestReleaseIsIdempotent(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		l := r.acquire(r.client(tap, nil), "jobs/one", nil)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := l.Release(r.Context()); err != nil {
					r.Error(err)
				}
			})
		}
		all.Wait()
		if err := l.Fail(r.Context()); err != nil {
			r.Error(err)
		}
		if n, _ := tap.count(tenure.Release); n != 1 {
			r.Errorf("released %d times", n)
		}
		r.wantLost(l, Released)
	})
}

func TestReleaseIsBounded(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		var seen events
		l := r.acquire(r.client(tap, &Options{Observe: seen.observe}), "jobs/one", nil)
		tap.set(hang)
		start := time.Now()
		if err := l.Release(r.Context()); !errors.Is(err, ErrUnknown) {
			r.Errorf("%v, want unknown", err)
		}
		wantAfter(r, start, 2*time.Second, 2*time.Second)
		r.wantLost(l, Released) // the lease is over, whatever the store says
		if len(seen.of(EventReleaseLeft)) != 1 {
			r.Error("nobody was told that the key frees itself")
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Second/2)
		defer cancel()
		start = time.Now()
		if err := l.Release(ctx); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("%v, want unknown and the end of the context", err)
		}
		wantAfter(r, start, time.Second/2, time.Second/2)
		tap.set(nil)
		time.Sleep(5 * time.Second)
		if err := l.Release(r.Context()); err != nil {
			r.Errorf("tried again when the store is back: %v", err)
		}
	})
}

// TestAReleaseThatHangsIsSentAgain: within its limit, in another call of the
// store.
func TestAReleaseThatHangsIsSentAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &hangFirst{Store: r.st}
		st.hung.Store(true)
		l := r.acquire(r.client(st, nil), "jobs/one", nil)
		st.hung.Store(false)
		start := time.Now()
		if err := l.Release(r.Context()); err != nil {
			r.Error(err)
		}
		wantAfter(r, start, time.Second, time.Second+100*time.Millisecond)
	})
}

// TestAReleaseWithAnEndedContextIsOneMessage: and its call is not cut off half
// way, which would cost many stores their connection.
func TestAReleaseWithAnEndedContextIsOneMessage(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		for i := range 20 {
			l := r.acquire(c, "jobs/one", nil)
			tap.forget()
			tap.set(slow(time.Millisecond))
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			if err := l.Release(ctx); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
				r.Errorf("%v, want unknown and the end of the context", err)
			}
			time.Sleep(time.Second)
			if n, _ := tap.count(tenure.Release); n != 1 || r.record("jobs/one").State != tenure.Free {
				r.Fatalf("the %dth time it was sent %d times, and the key is %s", i, n, r.record("jobs/one").State)
			}
			tap.set(nil)
		}
	})
}

func TestLaw6AReleaseWithLostRepliesIsOneRelease(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := storetest.DropReply(r.st, storetest.First(3, func(req tenure.Request) bool { return req.Verb == tenure.Release }))
		l := r.acquire(r.client(st, nil), "jobs/one", nil)
		if err := l.Release(r.Context()); err != nil {
			r.Error(err)
		}
	})
}

// TestLaw7ReleasingWhatAnotherOwnsChangesNothing: and the error says so.
func TestLaw7ReleasingWhatAnotherOwnsChangesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, clk := r.sleeper(nil, nil)
		l := r.acquire(c, "jobs/one", nil)
		taken, err := r.client(nil, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "x"})
		if err != nil {
			r.Fatal(err)
		}
		if err := l.Release(r.Context()); lossIn(err) != TakenOver || !errors.Is(err, ErrNotOwned) {
			r.Errorf("%v, want that it was taken over", err)
		}
		if err := l.Release(r.Context()); lossIn(err) != TakenOver {
			r.Errorf("the second time: %v", err)
		}
		if rec := r.record("jobs/one"); rec.Token != taken.Record.Token || rec.State != tenure.Held {
			r.Errorf("the store has token %d, %s", rec.Token, rec.State)
		}

		slept := r.acquire(c, "jobs/two", nil)
		clk.Suspend(time.Hour)
		time.Sleep(time.Second)
		r.wantLost(slept, Expired)
		if err := slept.Release(r.Context()); err != nil {
			r.Errorf("released while the store still kept it: %v", err)
		}
	})
}

func TestALeaseLostToAnotherIsNotReleased(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		l := r.acquire(r.client(tap, nil), "jobs/one", nil)
		if _, err := r.client(nil, nil).Revoke(r.Context(), "jobs/one", ByHand{Note: "x"}); err != nil {
			r.Fatal(err)
		}
		r.wantLost(l, TakenOver)
		if err := l.Release(r.Context()); lossIn(err) != TakenOver {
			r.Errorf("%v, want the loss", err)
		}
		if n, _ := tap.count(tenure.Release); n != 0 {
			r.Error("the store was asked to release what it had said is not ours")
		}
	})
}

// TestWorkMayReleaseWithItsOwnContext: the end of the lease ends that context,
// but not the release.
func TestWorkMayReleaseWithItsOwnContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(slow(100 * time.Millisecond))
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		if err := l.Release(l.Context()); err != nil {
			r.Errorf("with the lease's context: %v", err)
		}
		err := c.Do(r.Context(), "jobs/one", nil, func(ctx context.Context, l *Lease) error { return l.Release(ctx) })
		if err != nil {
			r.Errorf("with the work's context: %v", err)
		}
		l = r.acquire(c, "jobs/one", nil)
		ctx, cancel := context.WithTimeout(l.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := l.Release(ctx); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("with a deadline of its own: %v, want that to count", err)
		}
		wantAfter(r, start, 10*time.Millisecond, 10*time.Millisecond)
	})
}

// TestReleasingNoLeaseDoesNothing: a deferred release need not look at the
// error of the acquire.
func TestReleasingNoLeaseDoesNothing(t *testing.T) {
	var l *Lease
	if err := errors.Join(l.Release(t.Context()), l.Fail(t.Context())); err != nil {
		t.Error(err)
	}
}
