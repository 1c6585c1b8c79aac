package croft

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

var errWork = errors.New("the work went wrong")

func TestDoReleasesWhenTheWorkHasReturned(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		for _, work := range []error{nil, errWork} {
			var held *Lease
			err := c.Do(r.Context(), "jobs/one", nil, func(ctx context.Context, l *Lease) error {
				held = l
				time.Sleep(5 * time.Minute) // longer than its TTL
				if ctx.Err() != nil || !r.record("jobs/one").Alive(time.Now()) {
					r.Error("the lease did not last as long as the work")
				}
				return work
			})
			if !errors.Is(err, work) || errors.Is(err, ErrLost) {
				r.Errorf("Do returned %v, want %v", err, work)
			}
			want := tenure.EndReleased
			if work != nil {
				want = tenure.EndFailed
			}
			if rec := r.record("jobs/one"); rec.Ended != want {
				r.Errorf("ended %q, want %q", rec.Ended, want)
			}
			r.wantLost(held, Released)
		}
	})
}

func TestDoAfterALossMatchesBoth(t *testing.T) {
	for name, work := range map[string]error{"work fails": errWork, "work notices nothing": nil, "work returns the cause": ErrLost} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				tap := &tap{Store: r.st}
				err := r.client(tap, nil).Do(r.Context(), "jobs/one", nil, func(ctx context.Context, l *Lease) error {
					tap.set(down)
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, ErrLost) || !errors.Is(ctx.Err(), context.Canceled) {
						r.Errorf("the work's context ended with %v", cause)
					}
					if work != nil && errors.Is(work, ErrLost) {
						return context.Cause(ctx)
					}
					return work
				})
				if lossIn(err) != Unreachable || !errors.Is(err, ErrLost) || work != nil && !errors.Is(err, work) {
					r.Errorf("Do returned %v, want the loss and %v", err, work)
				}
			})
		})
	}
}

// TestNoWorkBeginsAfterTheEndOfItsContext: the context ends while the request
// is in flight. The key is free for others at once.
func TestNoWorkBeginsAfterTheEndOfItsContext(t *testing.T) {
	never := func(context.Context, *Lease) error {
		t.Error("the work began")
		return nil
	}
	for name, call := range map[string]func(ctx context.Context, c *Client) error{
		"Do":    func(ctx context.Context, c *Client) error { return c.Do(ctx, "jobs/one", nil, never) },
		"Every": func(ctx context.Context, c *Client) error { return c.Every(ctx, "jobs/one", time.Hour, nil, never) },
		"Loop": func(ctx context.Context, c *Client) error {
			if err := c.Loop(ctx, "jobs/one", time.Hour, nil, never); err != nil {
				return err
			}
			return ctx.Err() // a loop that ends with its context has done its work
		},
	} {
		inBubble(t, func(r *rig) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			tap := &tap{Store: r.st}
			tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
				defer cancel()
				return r.st.Apply(ctx, batch)
			})
			c := r.client(tap, nil)
			if err := call(ctx, c); !errors.Is(err, context.Canceled) {
				r.Errorf("%s returned %v", name, err)
			}
			l, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{Every: time.Hour, WaitFor: time.Second})
			if err != nil {
				r.Fatalf("%s: the next one: %v", name, err)
			}
			if err := l.Release(r.Context()); err != nil {
				r.Error(err)
			}
		})
	}
}

// TestDoFreesTheKeyAfterALossByTime: if the store still keeps it, so that
// others need not wait for the deadline.
func TestDoFreesTheKeyAfterALossByTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		err := r.client(nil, nil).Do(r.Context(), "jobs/one", &LeaseOptions{MaxHold: 30 * time.Second}, func(ctx context.Context, _ *Lease) error {
			<-ctx.Done()
			return nil
		})
		if lossIn(err) != HeldTooLong {
			r.Errorf("%v, want held too long", err)
		}
		if rec := r.record("jobs/one"); rec.Ended != tenure.EndFailed {
			r.Errorf("the key is %s, ended %q", rec.State, rec.Ended)
		}
	})
}

func TestDoReleasesForACallerWhoHasGone(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.Context())
		err := r.client(nil, nil).Do(ctx, "jobs/one", nil, func(ctx context.Context, _ *Lease) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrLost) {
			r.Errorf("%v, want the work's own error", err)
		}
		if rec := r.record("jobs/one"); rec.Ended != tenure.EndFailed {
			r.Errorf("the key is %s, ended %q", rec.State, rec.Ended)
		}
	})
}

func TestDoReleasesWhenTheWorkPanics(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		func() {
			defer func() {
				if p := recover(); p != "oops" {
					r.Errorf("recovered %v", p)
				}
			}()
			_ = c.Do(r.Context(), "jobs/one", nil, func(context.Context, *Lease) error { panic("oops") })
		}()
		if rec := r.record("jobs/one"); rec.Ended != tenure.EndFailed {
			r.Errorf("the key is %s, ended %q", rec.State, rec.Ended)
		}
	})
}

func TestWorkMayReleaseByItself(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		for _, work := range []error{nil, errWork} {
			err := c.Do(r.Context(), "jobs/one", nil, func(ctx context.Context, l *Lease) error {
				return errors.Join(l.Release(ctx), work)
			})
			if !errors.Is(err, work) || errors.Is(err, ErrLost) {
				r.Errorf("%v, want %v", err, work)
			}
		}
	})
}

func TestAnUnconfirmedReleaseIsSaidToBe(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		err := r.client(tap, nil).Do(r.Context(), "jobs/one", nil, func(context.Context, *Lease) error {
			tap.set(down)
			return nil
		})
		if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrLost) {
			r.Errorf("%v, want unknown", err)
		}
	})
}

func TestALossFoundAtTheReleaseIsALoss(t *testing.T) {
	for _, work := range []error{nil, errWork} {
		inBubble(t, func(r *rig) {
			other := r.client(nil, nil)
			err := r.client(nil, nil).Do(r.Context(), "jobs/one", nil, func(ctx context.Context, _ *Lease) error {
				if _, err := other.Revoke(ctx, "jobs/one", ByHand{Note: "x"}); err != nil {
					r.Error(err)
				}
				return work
			})
			if lossIn(err) != TakenOver || work != nil && !errors.Is(err, work) {
				r.Errorf("%v, want that it was taken over, and %v", err, work)
			}
		})
	}
}

// TestALossFoundWhenTheWorkReleasesIsALoss: also if the work ignores the error
// of its own Release.
func TestALossFoundWhenTheWorkReleasesIsALoss(t *testing.T) {
	for _, work := range []error{nil, errWork} {
		inBubble(t, func(r *rig) {
			other := r.client(nil, nil)
			err := r.client(nil, nil).Do(r.Context(), "jobs/one", nil, func(ctx context.Context, l *Lease) error {
				if _, err := other.Revoke(ctx, "jobs/one", ByHand{Note: "x"}); err != nil {
					r.Error(err)
				}
				_ = l.Release(ctx)
				return work
			})
			if lossIn(err) != TakenOver || work != nil && !errors.Is(err, work) {
				r.Errorf("%v, want that it was taken over, and %v", err, work)
			}
		})
	}
}

// TestWorkThatIsDoneOnceIsNotWaitedFor: several clients wait forever to do it.
// One does it, and the others learn at once that it is done.
func TestWorkThatIsDoneOnceIsNotWaitedFor(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		done := make(chan error)
		for _, c := range []*Client{r.client(nil, nil), r.client(nil, nil)} {
			for range 3 {
				go func() {
					done <- c.Every(ctx, "import", Once, &LeaseOptions{WaitFor: Forever}, func(context.Context, *Lease) error {
						time.Sleep(time.Minute)
						return nil
					})
				}()
			}
		}
		ran := 0
		for range 6 {
			err := <-done
			var held *tenure.HeldError
			switch {
			case err == nil:
				ran++
			case !errors.As(err, &held) || held.Why != tenure.WhyPeriod:
				r.Errorf("a client that waited for work that is done: %v", err)
			}
		}
		if ran != 1 {
			r.Errorf("the work was done %d times", ran)
		}
	})
}

// TestEveryRunsOncePerPeriod: also if starts come a little early or late.
func TestEveryRunsOncePerPeriod(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		runs := 0
		try := func() error {
			return c.Every(r.Context(), "jobs/daily", 24*time.Hour, nil, func(context.Context, *Lease) error {
				runs++
				return nil
			})
		}
		start := time.Now()
		for day := range 5 {
			early := time.Duration(day%3-1) * 20 * time.Minute
			time.Sleep(time.Until(start.Add(time.Duration(day)*24*time.Hour + time.Hour + early)))
			if err := try(); err != nil {
				r.Errorf("day %d: %v", day, err)
			}
			time.Sleep(30 * time.Minute)
			if err := try(); !errors.Is(err, ErrHeld) {
				r.Errorf("day %d, the second machine: %v, want held", day, err)
			}
		}
		if runs != 5 {
			r.Errorf("%d runs in 5 days", runs)
		}
		if err := c.Every(r.Context(), "jobs/daily", 0, nil, nil); !errors.Is(err, ErrInvalid) {
			r.Errorf("no period: %v", err)
		}
	})
}

func TestHoldForKeepsTheKey(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		nothing := func(context.Context, *Lease) error { return nil }
		if err := c.HoldFor(r.Context(), "jobs/one", 10*time.Minute, nil, nothing); err != nil {
			r.Fatal(err)
		}
		start := time.Now()
		if err := c.HoldFor(r.Context(), "jobs/one", 10*time.Minute, &LeaseOptions{WaitFor: Forever}, nothing); err != nil {
			r.Fatal(err)
		}
		wantAfter(r, start, 10*time.Minute, 10*time.Minute+time.Second)
		if err := c.HoldFor(r.Context(), "jobs/one", -time.Second, nil, nothing); !errors.Is(err, ErrInvalid) {
			r.Errorf("a hold of less than nothing: %v", err)
		}
	})
}

// TestLoopRunsOnceAnIntervalAmongReplicas: once in every interval.
func TestLoopRunsOnceAnIntervalAmongReplicas(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		var runs atomic.Int64
		done := make(chan error)
		for range 3 {
			c := r.client(nil, nil)
			go func() {
				done <- c.Loop(ctx, "jobs/tick", time.Minute, nil, func(context.Context, *Lease) error {
					runs.Add(1)
					return nil
				})
			}()
		}
		for range 3 {
			if err := <-done; err != nil {
				r.Errorf("Loop returned %v at the end of its context", err)
			}
		}
		if n := runs.Load(); n < 58 || n > 60 {
			r.Errorf("%d runs in an hour of minutes", n)
		}
	})
}

func TestLoopOutlivesFailuresAndEndsWhenTold(t *testing.T) {
	inBubble(t, func(r *rig) {
		var seen events
		tap := &tap{Store: r.st}
		c := r.client(tap, &Options{Observe: seen.observe})
		start := time.Now()
		turns := 0
		err := c.Loop(r.Context(), "jobs/tick", time.Minute, nil, func(context.Context, *Lease) error {
			switch turns++; turns {
			case 1:
				return errWork
			case 2:
				return nil
			}
			return Final(errWork)
		})
		if !errors.Is(err, errWork) || turns != 3 {
			r.Errorf("after %d turns: %v", turns, err)
		}
		wantAfter(r, start, 100*time.Second, 2*time.Minute+2*time.Second)
		if got := seen.of(EventWorkFailed); len(got) != 1 || !errors.Is(got[0].Err, errWork) {
			r.Errorf("failed turns: %+v", got)
		}
		if rec := r.record("jobs/tick"); rec.Ended != tenure.EndFailed {
			r.Errorf("ended %q", rec.Ended)
		}
		if err := c.Loop(r.Context(), "", time.Minute, nil, nil); !errors.Is(err, ErrInvalid) {
			r.Errorf("a bad key: %v", err)
		}
		if err := c.Loop(r.Context(), "k", 0, nil, nil); !errors.Is(err, ErrInvalid) {
			r.Errorf("no interval: %v", err)
		}
		if err := c.Loop(r.Context(), "k", time.Minute, nil, func(context.Context, *Lease) error { return Final(nil) }); err != nil {
			r.Errorf("a loop that ends without a reason: %v", err)
		}
		// Close ends the loop, wherever it is.
		done := make(chan error)
		go func() {
			done <- c.Loop(r.Context(), "jobs/tick", time.Minute, nil, func(ctx context.Context, _ *Lease) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		time.Sleep(10 * time.Minute)
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		if err := <-done; lossIn(err) != Closed && !errors.Is(err, ErrClosed) {
			r.Errorf("Loop on a closed client: %v", err)
		}
	})
}

// TestTheWorksOwnErrorIsKeptWithTheLoss: the work may return the loss itself,
// together with another error.
func TestTheWorksOwnErrorIsKeptWithTheLoss(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		o := &LeaseOptions{MaxHold: time.Second}
		err := c.Do(r.Context(), "jobs/one", o, func(ctx context.Context, _ *Lease) error {
			<-ctx.Done()
			return errors.Join(context.Cause(ctx), errWork)
		})
		if lossIn(err) != HeldTooLong || !errors.Is(err, errWork) {
			r.Errorf("Do: %v, want the loss and the work's own error", err)
		}
		brief, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		err = c.Loop(brief, "jobs/tick", time.Minute, o, func(ctx context.Context, _ *Lease) error {
			<-ctx.Done()
			return Final(context.Cause(ctx))
		})
		if lossIn(err) != HeldTooLong || brief.Err() != nil {
			r.Errorf("Loop: %v, want to end with what was final", err)
		}
	})
}

// TestLoopOutlivesTheEndOfAnotherClient: of a client that its work uses.
func TestLoopOutlivesTheEndOfAnotherClient(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, other := r.client(nil, nil), r.client(nil, nil)
		if err := other.Close(); err != nil {
			r.Fatal(err)
		}
		turns := 0
		err := c.Loop(r.Context(), "jobs/tick", time.Minute, nil, func(ctx context.Context, _ *Lease) error {
			if turns++; turns == 2 {
				return Final(errWork)
			}
			_, err := other.Acquire(ctx, "jobs/two", nil)
			return err
		})
		if !errors.Is(err, errWork) || turns != 2 {
			r.Errorf("after %d turns: %v", turns, err)
		}
	})
}

// TestOptionsAreLeftAlone: the patterns change only a copy.
func TestOptionsAreLeftAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := &LeaseOptions{TTL: time.Minute}
		if err := r.client(nil, nil).Every(r.Context(), "jobs/one", time.Hour, o, func(context.Context, *Lease) error { return nil }); err != nil {
			r.Fatal(err)
		}
		if o.Every != 0 {
			r.Error("the caller's options were changed")
		}
	})
}
