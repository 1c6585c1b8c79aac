package croft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// slow makes every call take a time.
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

// TestALoneCallerCallsAPromptStoreItself, and one that was slow the last time through a goroutine that it can leave.
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
		}{{0, false}, {0, true}, {promptly, true}, {2 * promptly, true}, {0, false}, {0, true}} {
			delay = want.delay
			r.acquire(c, fmt.Sprint("jobs/", i), nil)
			if itself != want.itself {
				r.Errorf("call %d was made by the caller itself: %t, want %t", i, itself, want.itself)
			}
		}
	})
}

// TestACallThatHangsHoldsUpNobodyBeyondItsBounds: neither the caller that makes it, whose context counts, nor those that come after.
func TestACallThatHangsHoldsUpNobodyBeyondItsBounds(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		r.acquire(c, "jobs/zero", nil) // the store was prompt
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
		tap.set(only(tenure.Report, hang)) // a batch that hangs until its time is over
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		go func() { _ = l.Report(r.Context(), "hangs") }()
		synctest.Wait()
		start := time.Now()
		r.acquire(c, "jobs/two", nil)
		wantAfter(r, start, 0, time.Second)
	})
}

// TestWhatHangsTakesNoOthersWithIt: what got no answer goes with its like, what was skipped goes alone, and all in the order of the first of each.
func TestWhatHangsTakesNoOthersWithIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(slow(time.Millisecond))
		c := r.client(tap, nil)
		var all sync.WaitGroup
		submit := func(key string, at lane) {
			all.Add(1)
			req := tenure.Request{Verb: tenure.Renew, Key: key, Secret: tenure.NewSecret()}
			c.calls.submit(&submission{requests: []tenure.Request{req}, lane: at, done: func([]store.Answer, clock.Instant) { all.Done() }})
		}
		submit("first", fresh) // on its way while the others gather
		submit("a1", again)
		submit("f1", fresh)
		submit("s1", alone)
		submit("f2", fresh)
		submit("s2", alone)
		submit("a2", again)
		all.Wait()
		var got []string
		for _, batch := range tap.all() {
			keys := ""
			for _, req := range batch {
				keys += req.Key + " "
			}
			got = append(got, keys)
		}
		if want := []string{"first ", "a1 a2 ", "f1 f2 ", "s1 ", "s2 "}; !slices.Equal(got, want) {
			r.Errorf("calls %q, want %q", got, want)
		}
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

func TestACallerLeavesItsRequestOnItsWay(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		tap.set(slow(500 * time.Millisecond))
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := l.Report(ctx, "half way"); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("a report that was left: %v, want unknown and the end of the context", err)
		}
		wantAfter(r, start, 100*time.Millisecond, 100*time.Millisecond)
		time.Sleep(time.Second)
		if rec := r.record("jobs/one"); rec.Progress != "half way" {
			r.Errorf("the request was lost with its caller: the record shows %q", rec.Progress)
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

func TestAStoreThatMiscountsIsNotBelieved(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(func(context.Context, []tenure.Request) []store.Answer { return []store.Answer{} })
		if _, err := r.client(tap, nil).Acquire(r.Context(), "jobs/one", nil); !errors.Is(err, ErrUnknown) {
			r.Errorf("no answers to one request: %v, want unknown", err)
		}
	})
}
