// Package wait serves calls that wait and have a context. It says why the
// context ended, and leaves a function behind that does not look at contexts:
// such a function runs on a goroutine of its own until it returns.
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
