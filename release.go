package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/tenure"
)

// releaseBound is how long a release may take if ctx has no deadline.
const releaseBound = 2 * time.Second

// Release ends the lease and gives the key back after success: HoldFor and
// Every apply. Call it after the work has returned, not before.
//
// If ctx has no deadline, Release takes at most 2 seconds. If the store has not
// answered by then, the error matches [ErrUnknown]. The key then frees itself
// at its deadline, and Release may be called again. The error matches [ErrLost]
// if the lease no longer owned the key. After a success, further calls succeed
// too.
func (l *Lease) Release(ctx context.Context) error { return l.finish(ctx, false) }

// Fail is Release after failure: HoldFor and Every do not apply, so that the
// work can be tried again at once.
func (l *Lease) Fail(ctx context.Context) error { return l.finish(ctx, true) }

func (l *Lease) finish(ctx context.Context, failed bool) error {
	if l == nil {
		return nil
	}
	l.c.mu.Lock()
	own, has := l.ctx, l.cancel != nil
	l.c.mu.Unlock()
	if has { // the work may release with the lease's context, or one derived from it
		var stop func()
		ctx, stop = wait.Outlasting(ctx, own)
		defer stop()
	}
	req := tenure.Request{Verb: tenure.Release, Key: l.Key(), Secret: l.l.Secret, Failed: failed}
	p := &pending{Call: engine.Call{Request: req, Lease: l.l}}
	err := l.act(ctx, p, releaseBound)
	if p.Reply.Answer != nil { // the store refused this very release
		l.c.notOwned(tenure.Release, l.Stamp(), l.c.o.Owner, err)
	}
	return err
}

// refused returns why the store refused the release. It is nil if the store
// accepted it, was not asked, or has not answered.
func (l *Lease) refused() error {
	l.c.mu.Lock()
	lost := l.l.Refused()
	l.c.mu.Unlock()
	return l.failure(lost, nil)
}

// lossIn returns the loss in an error, or "".
func lossIn(err error) Loss {
	var lost *LostError
	if errors.As(err, &lost) {
		return lost.Loss
	}
	return ""
}

// lose combines the error of a lost lease with the work's own error. The result
// matches both.
func lose(lost, work error) error {
	switch {
	case work == nil:
		return lost
	case errors.Is(work, lost):
		return work
	}
	return fmt.Errorf("%w; the work returned: %w", lost, work)
}
