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

// piped is a store that says that it is pipelined.
type piped struct{ *tap }

func (piped) Pipelines() bool { return true }

// TestAPipelinedStoreGetsASecondBatch: a pipelined store gets a second batch as
// soon as it is as large as the first, but no third. Renewals are not
// pipelined.
func TestAPipelinedStoreGetsASecondBatch(t *testing.T) {
	const ms = time.Millisecond
	const held = 10*ms + ms/2
	// begin makes n acquires, a millisecond apart. It returns when the calls of
	// the store began, and how many requests each had.
	begin := func(r *rig, c *Client, tap *tap, n int) (times []time.Duration, sizes []int) {
		start := time.Now()
		var mu sync.Mutex
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			mu.Lock()
			times, sizes = append(times, time.Since(start)), append(sizes, len(batch))
			mu.Unlock()
			return slow(held)(ctx, batch)
		})
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { r.acquire(c, fmt.Sprint("jobs/", n, "/", i), nil) })
			time.Sleep(ms)
		}
		all.Wait()
		return times, sizes
	}
	want := func(r *rig, what string, times []time.Duration, sizes []int, wantTimes []time.Duration, wantSizes []int) {
		r.Helper()
		if !slices.Equal(times, wantTimes) || !slices.Equal(sizes, wantSizes) {
			r.Errorf("%s: calls after %v with %v requests, want %v and %v", what, times, sizes, wantTimes, wantSizes)
		}
	}
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		times, sizes := begin(r, r.client(tap, nil), tap, 12)
		want(r, "one at a time", times, sizes, []time.Duration{0, held, 2 * held}, []int{1, 10, 1})
	})
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(piped{tap}, nil)
		times, sizes := begin(r, c, tap, 12)
		// The second batch is as large as the first and is sent at once. When
		// the first is answered, nine requests have gathered. The last request
		// is not sent beside those, though the second batch has been answered.
		want(r, "two at a time", times, sizes, []time.Duration{0, ms, held, 2 * held}, []int{1, 1, 9, 1})
	})
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(piped{tap}, nil)
		l := r.acquire(c, "jobs/renewed", nil)
		var under, renewals, renewing, together atomic.Int64
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			defer under.Add(-1)
			n := under.Add(1)
			if slices.ContainsFunc(batch, func(req tenure.Request) bool { return req.Verb == tenure.Renew }) {
				defer renewing.Add(-1)
				renewing.Add(1)
				renewals.Add(1)
			}
			if renewing.Load() > 0 && n > 1 {
				together.Add(1)
			}
			return slow(held)(ctx, batch)
		})
		var all sync.WaitGroup
		all.Go(func() {
			for i := range 3000 {
				r.acquire(c, fmt.Sprint("jobs/beside/", i), nil)
			}
		})
		all.Wait()
		if l.Remaining() <= 0 || renewals.Load() == 0 || together.Load() > 0 {
			r.Errorf("%d renewals, %d times with another call beside them, and the lease has %s", renewals.Load(), together.Load(), l.Remaining())
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
			c := r.client(piped{tap}, nil)
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

// TestTwoHangingBatchesCostNobodyATry: after both batches in flight have hung
// for seconds, the store is asked again as soon as it is without pipelining.
func TestTwoHangingBatchesCostNobodyATry(t *testing.T) {
	const ms = time.Millisecond
	const hangs, every = 2600 * ms, 50 * ms
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(piped{tap}, nil)
		start := time.Now()
		var under, most atomic.Int64
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			defer under.Add(-1)
			most.Store(max(most.Load(), under.Add(1)))
			if time.Since(start) < hangs {
				return hang(ctx, batch)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(r.Context())
		var all sync.WaitGroup
		for i := range int(hangs / every) {
			all.Go(func() {
				time.Sleep(time.Duration(i) * every)
				_, _ = c.Acquire(ctx, fmt.Sprint("jobs/", i), nil)
			})
		}
		time.Sleep(hangs)
		r.acquire(c, "jobs/last", nil)
		wantAfter(r, start, hangs, hangs+patientFor)
		cancel()
		all.Wait()
		if n := most.Load(); n != mostInFlight+1 {
			r.Errorf("%d batches were on their way at once, want %d", n, mostInFlight+1)
		}
	})
}

// TestTheEndOfAContextEndsNoOtherCall: neither the context of a caller that
// calls the store itself, nor that of a caller whose request is in the other
// batch.
func TestTheEndOfAContextEndsNoOtherCall(t *testing.T) {
	const ms = time.Millisecond
	for name, leaves := range map[string]int{"the first": 0, "the second": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				tap := &tap{Store: r.st}
				c := r.client(piped{tap}, nil)
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
						if i != leaves {
							wantAfter(r, start, time.Duration(100+10*i)*ms, time.Duration(100+10*i)*ms)
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

func (s *leaver) Pipelines() bool { return true }

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

func TestCloseWaitsForBothBatches(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &leaver{tap: &tap{Store: r.st}}
		c := r.client(st, &Options{CallTimeout: time.Minute})
		c.owned = true
		var answered atomic.Int64
		for i := range 3 { // the third waits
			go func() {
				_, _ = c.Acquire(r.Context(), fmt.Sprint("jobs/", i), &LeaseOptions{WaitFor: Forever})
				answered.Add(1)
			}()
		}
		synctest.Wait()
		if n := st.under.Load(); n != 2 {
			r.Errorf("%d calls under way, want 2", n)
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
