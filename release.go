package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/internal/keep"
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
	w := l.c.warden
	w.mu.Lock()
	own, has, first := l.ctx, l.cancel != nil, !l.giving // even if ctx is over: giving back is worth a message
	l.gave, l.giving = true, true
	w.mu.Unlock()
	if has && ctx.Done() != nil {
		var stop func()
		ctx, stop = outlasting(ctx, own)
		defer stop()
	}
	if !first {
		if err := l.queueUp(ctx); err != nil {
			return err
		}
	}
	defer l.stepBack()
	if l.finished {
		return l.outcome
	}
	defer l.c.lines.vacate(l)
	w.step(l, keep.Ended{Loss: keep.Released})
	lost := l.end()
	if lost.Loss == Superseded || lost.Loss == TakenOver || lost.Loss == Closed {
		l.finished, l.outcome = true, lost // nothing is left to give back
		return lost
	}
	if err := l.c.enter(); err != nil {
		return err
	}
	defer l.c.leave()
	r, err := l.c.ask(ctx, tenure.Request{Verb: tenure.Release, Key: l.Key(), Secret: l.deed.Secret, Failed: failed}, releaseBound, l.c.lines.pass(l))
	if !known(err) {
		l.c.emit(Event{Kind: EventReleaseLeft, Key: l.Key(), Token: l.Token(), Err: err})
		return err
	}
	l.finished, l.outcome = true, l.asLost(err)
	l.c.lines.yield(l, r.answer.Awaited)
	if err == nil {
		if l.c.calls.observe != nil {
			l.c.emit(Event{Kind: EventReleased, Key: l.Key(), Token: l.Token(), Failed: failed, Held: l.c.clk.Now().Sub(l.since)})
		}
		return nil
	}
	l.c.notOwned(tenure.Release, l.Stamp(), l.c.o.Owner, err)
	if lost.Loss == Released {
		l.c.emit(Event{Kind: EventLost, Key: l.Key(), Token: l.Token(), Loss: lossIn(l.outcome), Err: err})
	}
	return l.outcome
}

// queueUp waits until whoever is in Release has left it, no longer than a release may take.
func (l *Lease) queueUp(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, releaseBound)
		defer cancel()
	}
	w := l.c.warden
	for {
		w.mu.Lock()
		if !l.giving {
			l.giving = true
			w.mu.Unlock()
			return nil
		}
		if l.given == nil {
			l.given = make(chan struct{})
		}
		given := l.given
		w.mu.Unlock()
		select {
		case <-given:
		case <-ctx.Done():
			return fmt.Errorf("release of %q: another is under way: %w", l.Key(), ended(ctx))
		}
	}
}

// stepBack lets the next one into Release.
func (l *Lease) stepBack() {
	l.c.warden.mu.Lock()
	defer l.c.warden.mu.Unlock()
	l.giving = false
	if l.given != nil {
		close(l.given)
		l.given = nil
	}
}

// refused is why the store did not take the lease back, or nil if it did, has not been asked or has not answered.
func (l *Lease) refused() error {
	l.c.warden.mu.Lock()
	defer l.c.warden.mu.Unlock()
	if l.giving {
		return nil
	}
	return l.outcome
}

// givenBack reports whether Release or Fail was called.
func (l *Lease) givenBack() bool {
	l.c.warden.mu.Lock()
	defer l.c.warden.mu.Unlock()
	return l.gave
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

// errGrantedAnew refuses to resume a lease that the store has forgotten, and then granted to a late copy of its request: that is another term, with a token that may be lower.
var errGrantedAnew = errors.New("the store has forgotten this lease and granted its request anew, with another token; stop this work and acquire again")

// errGave refuses to resume a lease whose release may still be on its way.
var errGave = errors.New("it was to be given back, and that may yet come to pass; acquire again")

// errAlive refuses to resume a lease that was not lost.
var errAlive = fmt.Errorf("%w resume: the lease is alive; there is nothing to resume", ErrInvalid)
