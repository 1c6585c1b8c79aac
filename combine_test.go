package croft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// slow delays every call by d.
func slow(d time.Duration) func(context.Context, []tenure.Request) []store.Answer {
	return func(ctx context.Context, batch []tenure.Request) []store.Answer {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return store.Failed(len(batch), ctx.Err())
		}
	}
}

func TestALoneRequestIsNotDelayed(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		start := time.Now()
		for i := range 10 {
			r.acquire(c, fmt.Sprint("jobs/", i), nil)
		}
		wantAfter(r, start, 0, 0)
		if requests, calls := tap.count(tenure.Acquire); requests != 10 || calls != 10 {
			r.Errorf("%d requests in %d calls, want one call for each: there was nothing to wait for", requests, calls)
		}
	})
}

// TestALoneCallerCallsAPromptStoreItself: if the store's last call was slow,
// the caller uses a goroutine that it can leave behind.
func TestALoneCallerCallsAPromptStoreItself(t *testing.T) {
	inBubble(t, func(r *rig) {
		var itself bool
		delay := time.Duration(0)
		tap := &tap{Store: r.st}
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			stack := make([]byte, 1<<16)
			itself = bytes.Contains(stack[:runtime.Stack(stack, false)], []byte("(*Client).Acquire"))
			return slow(delay)(ctx, batch)
		})
		c := r.client(tap, nil)
		for i, want := range []struct {
			delay  time.Duration
			itself bool
		}{{0, false}, {0, true}, {promptWithin, true}, {2 * promptWithin, true}, {0, false}, {0, true}} {
			delay = want.delay
			r.acquire(c, fmt.Sprint("jobs/", i), nil)
			if itself != want.itself {
				r.Errorf("call %d was made by the caller itself: %t, want %t", i, itself, want.itself)
			}
		}
	})
}

// TestACallThatHangsHoldsUpNobodyBeyondItsBounds: neither the caller that makes
// it, whose context counts, nor the callers after it.
func TestACallThatHangsHoldsUpNobodyBeyondItsBounds(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		r.acquire(c, "jobs/zero", nil) // the store answers quickly
		tap.set(hang)
		ctx, cancel := context.WithTimeout(r.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := c.Acquire(ctx, "jobs/one", nil); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("%v, want unknown and the end of the context", err)
		}
		wantAfter(r, start, 300*time.Millisecond, 300*time.Millisecond)
		tap.set(nil)
		r.acquire(c, "jobs/two", nil)
		start = time.Now()
		var calls atomic.Int64
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			if calls.Add(1) == 1 {
				return hang(ctx, batch)
			}
			return nil
		})
		r.acquire(c, "jobs/three", nil)
		wantAfter(r, start, patientFor, patientFor+100*time.Millisecond)
	})
}

func TestCallersAreCombined(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(slow(10 * time.Millisecond))
		c := r.client(tap, nil)
		start := time.Now()
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				l := r.acquire(c, fmt.Sprint("jobs/", i), nil)
				if err := l.Release(r.Context()); err != nil {
					r.Error(err)
				}
			})
		}
		all.Wait()
		tap.mu.Lock()
		calls := len(tap.calls)
		tap.mu.Unlock()
		if calls > 6 {
			r.Errorf("64 callers, two requests each: %d calls of the store, want a handful", calls)
		}
		wantAfter(r, start, 20*time.Millisecond, 60*time.Millisecond)
	})
}

func TestAHangingBatchIsOvertaken(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(only(tenure.Report, hang)) // a batch hangs until its timeout
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		go func() { _ = l.Report(r.Context(), "hangs") }()
		synctest.Wait()
		start := time.Now()
		r.acquire(c, "jobs/two", nil)
		wantAfter(r, start, 0, time.Second)
	})
}

func TestAtMostFourBatchesAreOnTheirWay(t *testing.T) {
	inBubble(t, func(r *rig) {
		var flying, most atomic.Int64
		tap := &tap{Store: r.st}
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			n := flying.Add(1)
			defer flying.Add(-1)
			most.Store(max(most.Load(), n))
			return hang(ctx, batch)
		})
		c := r.client(tap, &Options{CallTimeout: time.Minute})
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 1500 * time.Millisecond)
				if _, err := c.Acquire(ctx, fmt.Sprint("jobs/", i), &LeaseOptions{WaitFor: Forever}); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					r.Errorf("acquire from a store that hangs: %v, want unknown and the end of the context", err)
				}
			})
		}
		all.Wait()
		if most.Load() != 4 {
			r.Errorf("%d batches were on their way at once, want 4", most.Load())
		}
	})
}

// TestACallerLeavesNothingButAReleaseOnItsWay: a caller that leaves sends
// nothing more, except a release. An operator's act or a report could arrive
// when others have moved on.
func TestACallerLeavesNothingButAReleaseOnItsWay(t *testing.T) {
	for verb, act := range map[tenure.Verb]func(context.Context, *Client, *Lease) error{
		tenure.Release:    func(ctx context.Context, _ *Client, l *Lease) error { return l.Release(ctx) },
		tenure.Report:     func(ctx context.Context, _ *Client, l *Lease) error { return l.Report(ctx, "half way") },
		tenure.Checkpoint: func(ctx context.Context, _ *Client, l *Lease) error { return l.Save(ctx, []byte("half way")) },
		tenure.Renew:      func(ctx context.Context, c *Client, l *Lease) error { return errOf(c.Renew(ctx, l.Deed(), false)) },
		tenure.Takeover: func(ctx context.Context, c *Client, l *Lease) error {
			return errOf(c.Takeover(ctx, l.Key(), ByHand{Note: "x"}))
		},
		tenure.Reserve: func(ctx context.Context, c *Client, l *Lease) error {
			return errOf(c.Reserve(ctx, l.Key(), "ana", ByHand{Note: "x"}))
		},
		tenure.Revoke: func(ctx context.Context, c *Client, l *Lease) error {
			return errOf(c.Revoke(ctx, l.Key(), ByHand{Note: "x"}))
		},
	} {
		t.Run(string(verb), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				tap := &tap{Store: r.st}
				c := r.client(tap, nil)
				l := r.acquire(c, "jobs/one", nil)
				tap.set(slow(500 * time.Millisecond))
				ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
				defer cancel()
				start := time.Now()
				if err := act(ctx, c, l); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					r.Errorf("left: %v, want unknown and the end of the context", err)
				}
				wantAfter(r, start, 100*time.Millisecond, 100*time.Millisecond)
				time.Sleep(time.Second)
				want := 1
				if verb == tenure.Release {
					want = 2
				}
				if n, _ := tap.count(verb); n != want {
					r.Errorf("the store was asked %d times, want %d", n, want)
				}
				if rec := r.record("jobs/one"); (rec.State == tenure.Free) != (verb == tenure.Release) {
					r.Errorf("the key is %s", rec.State)
				}
			})
		})
	}
}

// TestAPanicOfTheStoreHoldsUpNobody: the caller that made the call may recover.
func TestAPanicOfTheStoreHoldsUpNobody(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		r.acquire(c, "jobs/zero", nil) // the store answers quickly
		for range mostInFlight + 1 {
			tap.set(func(context.Context, []tenure.Request) []store.Answer { panic("a bug") })
			func() {
				defer func() {
					if recover() == nil {
						r.Error("the panic was lost")
					}
				}()
				_, _ = c.Acquire(r.Context(), "jobs/one", nil)
			}()
			tap.set(nil)
			start := time.Now()
			if err := r.acquire(c, "jobs/two", nil).Release(r.Context()); err != nil {
				r.Error(err)
			}
			wantAfter(r, start, 0, 0)
		}
	})
}

func TestCallTimeoutBoundsACall(t *testing.T) {
	inBubble(t, func(r *rig) {
		var took time.Duration
		tap := &tap{Store: r.st}
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			start := time.Now()
			answers := hang(ctx, batch)
			took = max(took, time.Since(start))
			return answers
		})
		c := r.client(tap, &Options{CallTimeout: 700 * time.Millisecond})
		if _, err := c.Renew(r.Context(), tenure.Deed{Key: "jobs/one", Secret: tenure.NewSecret()}, false); !errors.Is(err, ErrUnknown) {
			r.Errorf("%v, want unknown", err)
		}
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		if took != 700*time.Millisecond {
			r.Errorf("a call lasted %s, want CallTimeout", took)
		}
	})
}

// TestACallMayTakeForever: a huge CallTimeout does not overflow into a short
// limit.
func TestACallMayTakeForever(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		l := r.acquire(r.client(tap, &Options{CallTimeout: Forever}), "jobs/one", nil)
		tap.set(slow(100 * time.Millisecond))
		for range 2 { // first the store is quick, then it is not
			if err := l.Report(r.Context(), "half"); err != nil {
				r.Error(err)
			}
		}
	})
}

func TestAStoreThatMiscountsIsNotBelieved(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(func(context.Context, []tenure.Request) []store.Answer { return []store.Answer{} })
		for _, o := range []*Options{nil, {Observe: func(Event) {}}} {
			if _, err := r.client(tap, o).Acquire(r.Context(), "jobs/one", nil); !errors.Is(err, ErrUnknown) {
				r.Errorf("no answers to one request: %v, want unknown", err)
			}
		}
	})
}
