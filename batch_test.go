package croft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestOneBatchIsInFlightAtATime: requests that come meanwhile go together in
// the next.
func TestOneBatchIsInFlightAtATime(t *testing.T) {
	const ms = time.Millisecond
	const held = 10*ms + ms/2
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c, start := r.client(tap, nil), time.Now()
		var mu sync.Mutex
		var times []time.Duration
		var sizes []int
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			mu.Lock()
			times, sizes = append(times, time.Since(start)), append(sizes, len(batch))
			mu.Unlock()
			return slow(held)(ctx, batch)
		})
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() { r.acquire(c, fmt.Sprint("jobs/", i), nil) })
			time.Sleep(ms)
		}
		all.Wait()
		if !slices.Equal(times, []time.Duration{0, held, 2 * held}) || !slices.Equal(sizes, []int{1, 10, 1}) {
			r.Errorf("calls after %v with %v requests", times, sizes)
		}
	})
}

// TestRequestsAboutOneKeyKeepTheirOrder: the last caller to ask for a key is
// answered last, also if a caller before it has left.
func TestRequestsAboutOneKeyKeepTheirOrder(t *testing.T) {
	// Every other batch overtakes it.
	late := func(verb tenure.Verb) func(context.Context, []tenure.Request) []store.Answer {
		return only(verb, slow(20*time.Millisecond))
	}
	t.Run("a release that was left", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			tap := &tap{Store: r.st}
			c := r.client(tap, nil)
			l := r.acquire(c, "jobs/one", nil)
			tap.set(late(tenure.Release))
			over, cancel := context.WithCancel(r.Context())
			cancel()
			if err := l.Release(over); !errors.Is(err, ErrUnknown) {
				r.Errorf("a release that nobody waits for: %v, want unknown", err)
			}
			r.acquire(c, "jobs/one", nil)
		})
	})
}

// TestTheEndOfAContextEndsNoOtherCall: neither the context of a caller that
// calls the store itself, nor that of a caller whose request waits.
func TestTheEndOfAContextEndsNoOtherCall(t *testing.T) {
	const ms = time.Millisecond
	for name, leaves := range map[string]int{"the first": 0, "the second": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				tap := &tap{Store: r.st}
				c := r.client(tap, nil)
				r.acquire(c, "jobs/zero", nil) // the store answers quickly
				tap.set(slow(100 * ms))
				start := time.Now()
				var all sync.WaitGroup
				for i := range 2 {
					ctx, cancel := context.WithCancel(r.Context())
					defer cancel()
					all.Go(func() {
						_, err := c.Acquire(ctx, fmt.Sprint("jobs/", i), nil)
						if i == leaves && !errors.Is(err, context.Canceled) || i != leaves && err != nil {
							r.Errorf("caller %d: %v", i, err)
						}
						if i != leaves { // the second is sent when the call of the first has ended
							wantAfter(r, start, time.Duration(100+40*i)*ms, time.Duration(100+40*i)*ms)
						}
					})
					time.Sleep(10 * ms)
					if i == leaves {
						time.AfterFunc(30*ms, cancel)
					}
				}
				all.Wait()
			})
		})
	}
}

// leaver is a store whose calls take a while to notice that their context has
// ended.
type leaver struct {
	*tap
	under  atomic.Int64
	closed atomic.Bool
}

func (s *leaver) Apply(ctx context.Context, batch []tenure.Request) []store.Answer {
	s.under.Add(1)
	defer s.under.Add(-1)
	<-ctx.Done()
	time.Sleep(100 * time.Millisecond)
	return store.Failed(len(batch), ctx.Err())
}

func (s *leaver) Close() error {
	s.closed.Store(true)
	if n := s.under.Load(); n != 0 {
		return fmt.Errorf("closed with %d calls under way", n)
	}
	return nil
}

func TestCloseWaitsForTheBatchInFlight(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &leaver{tap: &tap{Store: r.st}}
		c := r.client(st, &Options{CallTimeout: time.Minute})
		c.owned = true
		var answered atomic.Int64
		for i := range 3 { // the others wait
			go func() {
				_, _ = c.Acquire(r.Context(), fmt.Sprint("jobs/", i), &LeaseOptions{WaitFor: Forever})
				answered.Add(1)
			}()
		}
		synctest.Wait()
		if n := st.under.Load(); n != 1 {
			r.Errorf("%d calls under way, want 1", n)
		}
		err := c.Close() // the outcomes are unknown
		if !errors.Is(err, ErrUnknown) || strings.Contains(err.Error(), "under way") || !st.closed.Load() {
			r.Errorf("Close: %v; the store was closed: %t", err, st.closed.Load())
		}
		if n := answered.Load(); n != 3 {
			r.Errorf("%d of 3 were answered", n)
		}
	})
}
