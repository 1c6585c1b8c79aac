package croft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// maxTogether limits the keys of one AcquireAll.
const maxTogether = 64

// Leases are several leases that are held together.
type Leases []*Lease

// AcquireAll takes the leases on several keys, or on none. The leases are in
// the order of keys. WaitFor is the time for all of them.
//
// It takes one key after the other, in the order of their names. So callers of
// AcquireAll never wait for each other in a circle. If one key cannot be had,
// or if a lease ends meanwhile, it releases the others. Its error is that of
// [Client.Acquire] for that key, or matches [ErrLost].
//
// A key may not be named twice. A guard belongs to one key, so Guards in o must
// be empty. There may be at most 64 keys.
func (c *Client) AcquireAll(ctx context.Context, keys []string, o *LeaseOptions) (Leases, error) {
	with := o.copied()
	order := slices.Sorted(slices.Values(keys))
	switch {
	case len(keys) == 0 || len(keys) > maxTogether:
		return nil, fmt.Errorf("%w keys: there must be between 1 and %d, not %d", ErrInvalid, maxTogether, len(keys))
	case len(slices.Compact(slices.Clone(order))) < len(keys):
		return nil, fmt.Errorf("%w keys: one is named twice; a lease is not re-entrant", ErrInvalid)
	case len(with.Guards) > 0:
		return nil, fmt.Errorf("%w guards: a guard belongs to one key, and these are %d", ErrInvalid, len(keys))
	}
	for _, key := range order { // before the first is taken
		if _, err := c.newAcquire(key, with); err != nil {
			return nil, err
		}
	}
	leases := make(Leases, len(keys))
	complete := false
	defer func() {
		if !complete { // also if a store or an observer has panicked
			_ = leases.Fail(context.WithoutCancel(ctx)) // what is not released lapses
		}
	}()
	began, wait := c.clk.Now(), with.WaitFor
	for _, key := range order {
		if wait < Forever {
			with.WaitFor = max(wait-c.clk.Now().Sub(began), 0)
		}
		inner, stop := leases.Within(ctx)
		l, err := c.Acquire(inner, key, with)
		if err == nil && leases.err() != nil {
			err = errors.Join(leases.err(), l.Fail(context.WithoutCancel(ctx)))
		}
		stop()
		if err != nil {
			return nil, fmt.Errorf("acquire all %d keys: %w", len(keys), err)
		}
		leases[slices.Index(keys, key)] = l
	}
	complete = true
	return leases, nil
}

// Within returns a context that ends when ctx or any of the leases does.
// [context.Cause] says which. Call the returned function when the work is done.
func (ls Leases) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(ctx)
	var unhook []func() bool
	if lost := ls.err(); lost != nil {
		cancel(lost) // AfterFunc would do so a moment later, and the work could begin
	}
	for _, l := range ls {
		if l != nil {
			own := l.Context()
			unhook = append(unhook, context.AfterFunc(own, func() { cancel(context.Cause(own)) }))
		}
	}
	return work, func() {
		for _, stop := range unhook {
			stop()
		}
		cancel(nil)
	}
}

// Release releases all leases at the same time, as [Lease.Release] does. Its
// error matches the error of each that failed.
func (ls Leases) Release(ctx context.Context) error { return ls.finish(ctx, (*Lease).Release) }

// Fail fails all leases at the same time, as [Lease.Fail] does.
func (ls Leases) Fail(ctx context.Context) error { return ls.finish(ctx, (*Lease).Fail) }

func (ls Leases) finish(ctx context.Context, finish func(*Lease, context.Context) error) error {
	errs := make([]error, len(ls))
	var all sync.WaitGroup
	for i, l := range ls {
		all.Go(func() { errs[i] = finish(l, ctx) }) // together, so that they share a batch
	}
	all.Wait()
	return errors.Join(errs...)
}

// err returns the loss of a lease that has ended.
func (ls Leases) err() error {
	for _, l := range ls {
		if l != nil {
			if err := l.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
