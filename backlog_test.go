package croft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// fill makes as many calls as there can be batches in flight, and each hangs.
// Every later request waits in the outbox.
func (r *rig) fill(ctx context.Context, c *Client, all *sync.WaitGroup) {
	for i := range mostInFlight {
		all.Go(func() { _, _ = c.Acquire(ctx, fmt.Sprint("hangs/", i), &LeaseOptions{WaitFor: Forever}) })
		time.Sleep(1100 * time.Millisecond)
	}
}

// queued returns how many requests wait in the outbox.
func (c *Client) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engine.Load().Waiting
}

// TestARequestWaitsInTheOutboxOnlyOnce: while a store hangs, repeated requests
// do not pile up for later.
func TestARequestWaitsInTheOutboxOnlyOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, &Options{CallTimeout: time.Minute})
		l := r.acquire(c, "jobs/mine", &LeaseOptions{TTL: time.Hour})
		tap.set(hang)
		ctx, cancel := context.WithCancel(r.Context())
		var all sync.WaitGroup
		r.fill(ctx, c, &all)
		const waiters = 10
		for i := range waiters {
			all.Go(func() { _, _ = c.Acquire(ctx, fmt.Sprint("jobs/", i), &LeaseOptions{WaitFor: Forever}) })
		}
		all.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			_ = l.Report(bounded, "half")
		})
		time.Sleep(30 * time.Second)
		if got, most := c.queued(), mostInFlight+waiters+1; got > most {
			r.Errorf("%d requests wait to be sent, want at most one for each of %d callers", got, most)
		}
		cancel()
		tap.set(nil)
		all.Wait()
	})
}

// TestManyWaitersCostNoLease: a slow, overloaded store does not get more
// requests because it is slow. Leases are renewed in time.
func TestManyWaitersCostNoLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/mine", &LeaseOptions{TTL: 20 * time.Second})
		other := r.client(nil, nil)
		const waiters = 3 * mostInBatch / 2
		for i := range waiters {
			r.acquire(other, fmt.Sprint("jobs/", i), &LeaseOptions{TTL: 24 * time.Hour})
		}
		tap.set(slow(2 * time.Second))
		ctx, cancel := context.WithCancel(r.Context())
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() { _, _ = c.Acquire(ctx, fmt.Sprint("jobs/", i), &LeaseOptions{WaitFor: Forever}) })
		}
		time.Sleep(30 * time.Second)
		if err := l.Err(); err != nil {
			r.Error(err)
		}
		if got := c.queued(); got > waiters+1 {
			r.Errorf("%d requests of %d callers wait to be sent", got, waiters)
		}
		cancel()
		all.Wait()
	})
}

// TestACallerThatLeavesBeforeSendingLeavesNothing: no request, and no attempt
// that goes on without a caller.
func TestACallerThatLeavesBeforeSendingLeavesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, &Options{CallTimeout: time.Minute})
		tap.set(hang)
		ctx, cancel := context.WithCancel(r.Context())
		var all sync.WaitGroup
		r.fill(ctx, c, &all)
		for patience := range 3 { // after the first, the batch is known to hang
			brief, cancel := context.WithTimeout(r.Context(), time.Duration(patience)*time.Second+time.Second/2)
			_, err := c.Acquire(brief, "jobs/one", &LeaseOptions{WaitFor: Forever})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "never sent") {
				r.Errorf("%v, want that it was never sent", err)
			}
		}
		synctest.Wait()
		c.mu.Lock()
		active := c.engine.Load().Active
		c.mu.Unlock()
		if active > mostInFlight {
			r.Errorf("%d calls are under way, want those of the %d who wait", active, mostInFlight)
		}
		sent, _ := tap.count(tenure.Acquire)
		tap.set(nil)
		cancel()
		all.Wait()
		time.Sleep(5 * time.Minute)
		if n, _ := tap.count(tenure.Acquire); n != sent {
			r.Errorf("%d requests were sent, %d of them after their callers had left", n, n-sent)
		}
		for _, batch := range tap.all() {
			if slices.ContainsFunc(batch, func(req tenure.Request) bool { return req.Key == "jobs/one" }) {
				r.Errorf("what nobody waited for was sent: %v", batch)
			}
		}
		if rec := r.record("hangs/0"); rec.State == tenure.Held {
			r.Error("a key is held by nobody")
		}
	})
}

// TestAnActGivenUpBeforeItWasSentIsNotDone: an operator's act that was reported
// as failed is not done later, when nobody expects it. A release is.
func TestAnActGivenUpBeforeItWasSentIsNotDone(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, &Options{CallTimeout: time.Minute})
		l := r.acquire(c, "jobs/mine", &LeaseOptions{TTL: time.Hour})
		tap.set(hang)
		ctx, cancel := context.WithCancel(r.Context())
		var all sync.WaitGroup
		r.fill(ctx, c, &all)
		brief, done := context.WithTimeout(r.Context(), 3*time.Second)
		defer done()
		if _, err := c.Takeover(brief, "jobs/other", ByHand{Note: "x"}); !errors.Is(err, ErrUnknown) {
			r.Errorf("takeover: %v", err)
		}
		if err := l.Release(r.Context()); !errors.Is(err, ErrUnknown) {
			r.Errorf("release: %v", err)
		}
		tap.set(nil)
		cancel()
		all.Wait()
		time.Sleep(5 * time.Minute)
		if n, _ := tap.count(tenure.Takeover); n != 0 {
			r.Error("the takeover was sent")
		}
		if rec := r.record("jobs/mine"); rec.State != tenure.Free {
			r.Errorf("the lease that was given back is %s", rec.State)
		}
	})
}

// TestARefusedCallerThatLeavesLeavesNothing: all its requests were answered. So
// there is nothing to release, nothing for Close to wait for, and nothing
// unknown about a key that is held.
func TestARefusedCallerThatLeavesLeavesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{TTL: time.Hour})
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		ctx, cancel := context.WithCancel(r.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := c.Acquire(ctx, "jobs/one", &LeaseOptions{WaitFor: Forever})
			if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrHeld) || errors.Is(err, ErrUnknown) {
				r.Errorf("%v, want that it was held", err)
			}
		})
		time.Sleep(time.Minute)
		tap.set(slow(900 * time.Millisecond))
		all.Go(func() { r.acquire(c, "jobs/two", nil) })
		for c.queued() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		time.Sleep(3 * time.Second)
		if n, _ := tap.count(tenure.Release); n > 0 {
			r.Errorf("%d releases of what was refused", n)
		}
		if err := c.Close(); err != nil {
			r.Errorf("Close: %v", err)
		}
		all.Wait()
	})
}
