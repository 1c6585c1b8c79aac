package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/tenure"
)

// releaseBound is how long a release may take when the caller sets no bound.
const releaseBound = 2 * time.Second

// Release ends the lease and gives the key back after success: HoldFor and Every apply. Call it when the work has returned, not before. It takes at
// most 2 seconds if ctx has no deadline; if the store could not be reached by then its error matches ErrUnknown, the key frees itself at its
// deadline, and Release may be called again. Its error matches ErrLost if the key was no longer the lease's to give back. Once it has succeeded it
// goes on succeeding.
func (l *Lease) Release(ctx context.Context) error { return l.finish(ctx, false) }

// Fail is Release after failure: HoldFor and Every do not apply, so that the work can be tried again at once.
func (l *Lease) Fail(ctx context.Context) error { return l.finish(ctx, true) }

func (l *Lease) finish(ctx context.Context, failed bool) error {
	if l == nil {
		return nil
	}
	l.c.mu.Lock()
	own, has := l.ctx, l.cancel != nil
	l.c.mu.Unlock()
	if has && ctx.Done() != nil {
		var stop func()
		ctx, stop = outlasting(ctx, own)
		defer stop()
	}
	req := tenure.Request{Verb: tenure.Release, Key: l.Key(), Secret: l.l.Secret, Failed: failed}
	p := &pending{Call: engine.Call{Request: req, Lease: l.l}}
	err := l.act(ctx, p, releaseBound)
	if p.Reply.Answer != nil { // this very release was refused
		l.c.notOwned(tenure.Release, l.Stamp(), l.c.o.Owner, err)
	}
	return err
}

// refused is why the store did not take the lease back, or nil if it did, has
// not been asked or has not answered.
func (l *Lease) refused() error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if lost := l.l.Refused(); lost != nil {
		return l.lostBy(lost)
	}
	return nil
}

// outlasting is ctx, except that the end of a lease's own context does not end it: work may release with that, or one made from it.
func outlasting(ctx, own context.Context) (context.Context, func()) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := func() { cancel(nil) }
	if deadline, ok := ctx.Deadline(); ok {
		var free context.CancelFunc
		out, free = context.WithDeadline(out, deadline)
		stop = func() { free(); cancel(nil) }
	}
	end := func() {
		if cause := context.Cause(ctx); cause != context.Cause(own) { //nolint:errorlint // the very same, not one like it
			cancel(cause)
		}
	}
	if ctx.Err() != nil {
		end() // now, and not when the call of the store has begun
	}
	unhook := context.AfterFunc(ctx, end)
	return out, func() { unhook(); stop() }
}

// lossIn finds the loss in an error, or "".
func lossIn(err error) Loss {
	var lost *LostError
	if errors.As(err, &lost) {
		return lost.Loss
	}
	return ""
}

// lose is how a lease's error reads when the work has an error of its own: it matches both.
func lose(lost, work error) error {
	switch {
	case work == nil:
		return lost
	case errors.Is(work, lost):
		return work
	}
	return fmt.Errorf("%w; the work returned: %w", lost, work)
}

// errGave refuses to resume a lease whose release may still be on its way.
var errGave = errors.New("it was to be given back, and that may yet come to pass; acquire again")

// errAlive refuses to resume a lease that was not lost.
var errAlive = fmt.Errorf("%w resume: the lease is alive; there is nothing to resume", ErrInvalid)
