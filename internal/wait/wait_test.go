package wait

import (
	"context"
	"errors"
	"testing"
)

func TestEndedTellsErrorAndCause(t *testing.T) {
	if err := Ended(t.Context()); err != nil {
		t.Errorf("of a context that goes on: %v, want nil", err)
	}
	why := errors.New("the operator said so")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := Ended(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("of a context with a cause: %v, want both its error and its cause", err)
	}
	plain, stop := context.WithCancel(t.Context())
	stop()
	if err := Ended(plain); err != context.Canceled { //nolint:errorlint // not wrapped: it says nothing more
		t.Errorf("of a context without a cause: %v, want context.Canceled as it is", err)
	}
}

func TestForLeavesBehindAFunctionThatHangs(t *testing.T) {
	hangs := make(chan struct{})
	defer close(hangs)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := For(ctx, func() (int, error) {
		cancel()
		<-hangs
		return 1, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("For: %v, want context.Canceled", err)
	}
	if n, err := For(t.Context(), func() (int, error) { return 1, nil }); n != 1 || err != nil {
		t.Errorf("For answered %d, %v; want the result", n, err)
	}
}

// TestOutlastingEndsWithItsOwnContextOnly: the other context is part of it.
func TestOutlastingEndsWithItsOwnContextOnly(t *testing.T) {
	lease, lost := context.WithCancelCause(t.Context())
	work, cancel := context.WithCancelCause(lease)
	out, stop := Outlasting(work, lease)
	defer stop()
	lost(errors.New("the lease is lost"))
	<-work.Done()
	later, stopLater := Outlasting(work, lease) // it had ended before
	defer stopLater()
	if out.Err() != nil || later.Err() != nil {
		t.Errorf("after the end of the other context: %v and %v, want none", out.Err(), later.Err())
	}
	cancel(nil)

	own, cancelOwn := context.WithCancelCause(t.Context())
	why := errors.New("the caller left")
	out, stop = Outlasting(own, lease)
	defer stop()
	cancelOwn(why)
	<-out.Done()
	if !errors.Is(context.Cause(out), why) {
		t.Errorf("its cause is %v, want %v", context.Cause(out), why)
	}
}
