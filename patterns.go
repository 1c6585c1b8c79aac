package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/internal/final"
	"github.com/croft-dev/croft/internal/wait"
)

// Work is a function that runs under a lease. Its context ends when the lease
// or the caller's context ends, and [context.Cause] says which. The function
// should return soon after that. Every write that matters carries
// [Lease.Stamp].
type Work = func(ctx context.Context, l *Lease) error

// Do acquires the lease, runs fn, and releases the lease when fn has returned.
// The release reports failure if fn returned an error or panicked, and success
// otherwise. fn does not begin after ctx has ended. A lease is not re-entrant:
// in fn, a Do of the same key is refused, or waits in vain.
//
// If Acquire fails, Do returns its error. If the lease is lost meanwhile, the
// error matches [ErrLost], even if fn returned nil. It also matches fn's own
// error. If fn returned nil and the error matches [ErrUnknown], the work is
// done but its release is not confirmed.
func (c *Client) Do(ctx context.Context, key string, o *LeaseOptions, fn Work) error {
	l, err := c.Acquire(ctx, key, o)
	if err != nil {
		return err
	}
	return l.do(ctx, fn)
}

// Every is [Client.Do] once per period. If the work has succeeded in this
// period, its error is a [*HeldError] with [WhyPeriod].
//
// Periods are windows. The first success is in the middle of its window, and
// fixes all others. In each window the work succeeds at most once, however
// often it is asked for. A start that is early or late by less than half a
// period skips and doubles none. With the period [Once] the work succeeds once
// and never again.
func (c *Client) Every(ctx context.Context, key string, period time.Duration, o *LeaseOptions, fn Work) error {
	if period <= 0 {
		return fmt.Errorf("%w period %s: it must be more than 0", ErrInvalid, period)
	}
	with := o.copied()
	with.Every = period
	return c.Do(ctx, key, with, fn)
}

// HoldFor is [Client.Do], but it keeps the key from everybody until hold after
// it was acquired, if fn succeeds before that.
func (c *Client) HoldFor(ctx context.Context, key string, hold time.Duration, o *LeaseOptions, fn Work) error {
	if hold <= 0 {
		return fmt.Errorf("%w hold %s: it must be more than 0", ErrInvalid, hold)
	}
	with := o.copied()
	with.HoldFor = hold
	return c.Do(ctx, key, with, fn)
}

// Loop runs fn again and again. Of all replicas that call Loop with the same
// key, one runs fn in every interval.
//
// Loop returns nil when ctx ends. It returns an error when the client is
// closed, when the input is bad, or when fn returns an error made by [Final].
// Any other failure, a lost lease included, is an [EventWorkFailed]. Then
// another replica may try at once, and this one tries again after an interval.
// Loop does not use WaitFor and HoldFor in o.
func (c *Client) Loop(ctx context.Context, key string, interval time.Duration, o *LeaseOptions, fn Work) error {
	if interval <= 0 {
		return fmt.Errorf("%w interval %s: it must be more than 0", ErrInvalid, interval)
	}
	with := o.copied()
	with.HoldFor, with.WaitFor = interval, Forever
	for {
		l, err := c.Acquire(ctx, key, with)
		if err == nil {
			err = l.do(ctx, fn)
		} else if errors.Is(err, ErrInvalid) {
			return err
		}
		if end, over := c.endsWith(ctx, err); over {
			return end
		}
		if err != nil {
			c.emit(Event{Kind: EventWorkFailed, Key: key, Err: err})
			c.rest(ctx, interval)
		}
	}
}

// endsWith reports whether one turn's error, or the end of ctx, ends all turns,
// and with which error.
func (c *Client) endsWith(ctx context.Context, err error) (end error, over bool) {
	last, isFinal := final.Of(err)
	switch {
	case isFinal:
		return last.Err, true
	case ctx.Err() != nil:
		return nil, true
	// This client is closed, not another client that the work uses.
	case isClosed(c.closing) && (errors.Is(err, ErrClosed) || lossIn(err) == Closed):
		return err, true
	}
	return nil, false
}

// rest waits for an interval, or a little less, so that replicas drift apart.
func (c *Client) rest(ctx context.Context, interval time.Duration) {
	timer := c.clk.Timer(interval - time.Duration(float64(interval/10)*c.random()))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	case <-c.closing:
	}
}

// Final makes the error by which a function says that trying again would not
// help. It ends a [Client.Loop], which then returns err. Final(nil) ends it
// too, without an error. In a handler of package work it makes the item dead.
func Final(err error) error { return &final.Error{Err: err} }

// do is Do after the grant.
func (l *Lease) do(ctx context.Context, fn Work) error {
	work, stop := l.within(ctx)
	defer stop()
	// Release even if the caller's context has ended.
	after := context.WithoutCancel(ctx)
	returned := false
	defer func() {
		// fn has panicked or ended the goroutine: do not leave the key held.
		if !returned {
			_ = l.Fail(after)
		}
	}()
	// If ctx has ended since the grant, fn does not begin.
	err := wait.Ended(ctx)
	if err == nil {
		err = fn(work, l)
	}
	returned = true

	lost := l.Err()
	if loss := (*LostError)(nil); errors.As(lost, &loss) && loss.Loss == Released && loss.Err == nil {
		if refused := l.refused(); refused != nil {
			return lose(refused, err)
		}
		return err // fn has released it
	}
	switch {
	case lost != nil:
		_ = l.Fail(after) // the store may still keep the key for us
		return lose(lost, err)
	case err != nil:
		if failed := l.Fail(after); errors.Is(failed, ErrLost) {
			return lose(failed, err)
		}
		return err
	}
	if err := l.Release(after); err != nil {
		if errors.Is(err, ErrLost) {
			return err
		}
		return fmt.Errorf("the work on %q is done, but its release is not confirmed; the key frees itself: %w",
			l.Key(), err)
	}
	return nil
}

// within returns a context that ends when ctx or the lease does.
func (l *Lease) within(ctx context.Context) (context.Context, func()) { return Leases{l}.Within(ctx) }

// copied returns a copy of o, or the defaults if o is nil.
func (o *LeaseOptions) copied() *LeaseOptions {
	if o == nil {
		return &LeaseOptions{}
	}
	c := *o
	return &c
}
