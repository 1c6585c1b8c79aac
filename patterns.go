package croft

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Work is what is done under a lease. Its context ends when the lease or the caller's context does, and context.Cause tells which; it should return soon
// after that. Every write that matters carries [Lease.Stamp].
type Work = func(ctx context.Context, l *Lease) error

// Do acquires the lease, does the work, and releases the lease when the work has
// returned. The release says failure if the work returned an error or panicked,
// otherwise success. The work never begins after ctx has ended.
//
// If the lease was lost on the way, the error matches ErrLost, even if the work
// returned nil. It also matches the work's own error. If the work returned nil
// and the error matches ErrUnknown, the release could not be confirmed.
func (c *Client) Do(ctx context.Context, key string, o *LeaseOptions, fn Work) error {
	l, err := c.Acquire(ctx, key, o)
	if err != nil {
		return err
	}
	return l.do(ctx, fn)
}

// Every is Do once per period: its error matches ErrHeld while the last term that ended in success began less than half a period ago, so that a
// start that comes early or late by less never skips a slot.
func (c *Client) Every(ctx context.Context, key string, period time.Duration, o *LeaseOptions, fn Work) error {
	if period <= 0 {
		return fmt.Errorf("%w period %s: it must be more than 0", ErrInvalid, period)
	}
	with := o.copied()
	with.Every = period
	return c.Do(ctx, key, with, fn)
}

// HoldFor is Do, and keeps the key from everybody for hold after it was acquired, if the work succeeds sooner.
func (c *Client) HoldFor(ctx context.Context, key string, hold time.Duration, o *LeaseOptions, fn Work) error {
	if hold <= 0 {
		return fmt.Errorf("%w hold %s: it must be more than 0", ErrInvalid, hold)
	}
	with := o.copied()
	with.HoldFor = hold
	return c.Do(ctx, key, with, fn)
}

// Loop does the work again and again: in every interval one of all replicas that call Loop does it. It returns when ctx ends (ctx.Err), when the
// client is closed, when the input is bad, or when the work returns an error made by [Fatal]. Any other failure, a lost lease included, is an
// [EventWorkFailed]: another replica may try at once, this one tries again after an interval. WaitFor and HoldFor in o are not used.
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
		var fatal *fatalError
		switch {
		case errors.As(err, &fatal):
			return fatal.err
		case ctx.Err() != nil:
			return ended(ctx)
		case isClosed(c.closing) && (errors.Is(err, ErrClosed) || lossIn(err) == Closed): // and not another client that the work uses
			return err
		case err != nil:
			c.emit(Event{Kind: EventWorkFailed, Key: key, Err: err})
			c.rest(ctx, interval)
		}
	}
}

// rest lets an interval pass, a little less so that replicas drift apart.
func (c *Client) rest(ctx context.Context, interval time.Duration) {
	timer := c.clk.Timer(interval - time.Duration(float64(interval/10)*c.random()))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	case <-c.closing:
	}
}

// Fatal makes an error that ends a [Client.Loop], which then returns err.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &fatalError{err}
}

type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// do is the part of Do after the grant.
func (l *Lease) do(ctx context.Context, fn Work) error {
	work, stop := l.within(ctx)
	defer stop()
	after := context.WithoutCancel(ctx) // the release is owed even if the caller has gone
	returned := false
	defer func() {
		if !returned { // a panic, or the end of the goroutine: do not leave the key held
			_ = l.Fail(after)
		}
	}()
	err := ended(ctx) // it may have ended since the grant: then the work does not begin
	if err == nil {
		err = fn(work, l)
	}
	returned = true

	lost := l.Err()
	if loss := (*LostError)(nil); errors.As(lost, &loss) && loss.Loss == Released && loss.Err == nil {
		if refused := l.refused(); refused != nil {
			return lose(refused, err)
		}
		return err // the work released it by itself
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
		return fmt.Errorf("the work on %q is done, but its release is not confirmed; the key frees itself: %w", l.Key(), err)
	}
	return nil
}

// within is a context that ends when ctx or the lease does.
func (l *Lease) within(ctx context.Context) (context.Context, func()) {
	work, cancel := context.WithCancelCause(ctx)
	own := l.Context()
	unhook := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	return work, func() {
		unhook()
		cancel(nil)
	}
}

// copied is a copy to change; of nil, the defaults.
func (o *LeaseOptions) copied() *LeaseOptions {
	if o == nil {
		return &LeaseOptions{}
	}
	c := *o
	return &c
}
