package croft

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// MaxSlots is the maximum of [LeaseOptions.Slots].
const MaxSlots = 64

// acquireSlot acquires one of several keys: key/1 to key/N.
//
// It first tries each slot once, from a random one on, so that contenders do
// not all ask for the same. If all are taken, it waits for all of them at the
// same time, in the store's own queues, and keeps the first that it gets.
func (c *Client) acquireSlot(ctx context.Context, key string, o *LeaseOptions) (*Lease, error) {
	with, n, wait := *o, o.Slots, o.WaitFor
	with.Slots = 0
	name := func(i int) string { return fmt.Sprintf("%s/%d", key, i%n+1) }
	switch {
	case n < 1 || n > MaxSlots:
		return nil, fmt.Errorf("%w Slots %d: there must be between 1 and %d", ErrInvalid, n, MaxSlots)
	case o.Every != 0:
		return nil, fmt.Errorf("%w Every with Slots: each slot would have periods of its own", ErrInvalid)
	case len(o.Guards) > 0:
		return nil, fmt.Errorf("%w Guards with Slots: a guard belongs to one key; slots are several", ErrInvalid)
	}
	if _, err := c.newAcquire(name(n-1), &with); err != nil { // before the first is asked for
		return nil, err
	}
	began, first := c.clk.Now(), int(c.random()*float64(n))
	with.WaitFor = 0
	var refused error
	for i := range n {
		l, err := c.Acquire(ctx, name(first+i), &with)
		if wait > 0 && ctx.Err() == nil && errors.Is(err, ErrUnknown) {
			break // the store may only be starting again, and a call that waits goes on asking
		}
		if err == nil || !errors.Is(err, ErrHeld) {
			return l, err
		}
		refused = err
	}
	if with.WaitFor = wait; wait < Forever {
		with.WaitFor = max(wait-c.clk.Now().Sub(began), 0)
	}
	if wait > 0 {
		l, err := c.awaitSlot(ctx, n, name, &with)
		if err == nil || !errors.Is(err, ErrHeld) {
			return l, err
		}
		refused = err
	}
	return nil, fmt.Errorf("all %d slots of %q are taken: %w", n, key, refused)
}

// awaitSlot waits for all slots, and keeps the first that it gets. Each wait is
// a call of its own, on a goroutine that ends before awaitSlot returns.
func (c *Client) awaitSlot(ctx context.Context, n int, name func(int) string, o *LeaseOptions) (*Lease, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var got *Lease
	var failed error
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			l, err := c.Acquire(waiting, name(i), o)
			mu.Lock()
			spare := l
			switch {
			case err == nil && got == nil:
				got, spare = l, nil
				stop()
			case err != nil && got == nil && waiting.Err() == nil && !errors.Is(err, ErrHeld):
				failed = err
				stop()
			case err != nil && failed == nil:
				failed = err
			}
			mu.Unlock()
			_ = spare.Fail(context.WithoutCancel(ctx)) // two came free at once; nil is none
		})
	}
	all.Wait()
	if got != nil {
		return got, nil
	}
	return nil, failed
}
