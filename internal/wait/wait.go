// Package wait serves calls that wait and have a context. It says why the
// context ended, and leaves a function behind that does not look at contexts:
// such a function runs on a goroutine of its own until it returns. It makes a
// context that goes on when another ends.
package wait

import (
	"context"
	"errors"
	"fmt"
)

// Ended returns why ctx has ended: its error, and its cause if that says more.
// It returns nil if ctx has not ended.
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// For calls f in a goroutine and returns its result, or leaves it behind when
// ctx ends. If both happen at once, the result counts. f must not use memory
// that the caller may change.
func For[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		select {
		case r := <-done:
			return r.value, r.err
		default:
		}
		var none T
		return none, Ended(ctx)
	}
}

// Outlasting returns a context like ctx that goes on when another context ends,
// of which ctx may be part. Call the returned function when it is done with.
func Outlasting(ctx, other context.Context) (context.Context, func()) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := func() { cancel(nil) }
	if deadline, ok := ctx.Deadline(); ok {
		var free context.CancelFunc
		out, free = context.WithDeadline(out, deadline)
		stop = func() { free(); cancel(nil) }
	}
	end := func() {
		if cause := context.Cause(ctx); cause != context.Cause(other) { //nolint:errorlint // the very same error
			cancel(cause)
		}
	}
	if ctx.Err() != nil {
		end() // before the caller begins
	}
	unhook := context.AfterFunc(ctx, end)
	return out, func() { unhook(); stop() }
}
