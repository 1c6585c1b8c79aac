package history

import (
	"context"
	"errors"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// Guard records the raises at the guard that it wraps. Writes look different at
// every guard, so their callers use [Recorder.Write].
type Guard struct {
	guard.Guard
	r *Recorder
}

// NewGuard wraps a guard, to record the raises at it.
func (r *Recorder) NewGuard(g guard.Guard) *Guard { return &Guard{Guard: g, r: r} }

// Raise raises the fence.
func (g *Guard) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	id := g.r.Begin(presented(Raise, stamp))
	mark, err := g.Guard.Raise(ctx, stamp)
	g.r.End(id, Admitted(err))
	return mark, err
}

// Write records one copy of a write: an update made from a prior one. The stamp
// says whose write it is, even if no guard checks it.
func (r *Recorder) Write(stamp fence.Stamp, update, prior string, write func() error) error {
	c := presented(Write, stamp)
	c.Update, c.Prior = update, prior
	id := r.Begin(c)
	err := write()
	r.End(id, Admitted(err))
	return err
}

func presented(kind Kind, stamp fence.Stamp) Call {
	return Call{Kind: kind, Key: stamp.Key, Token: stamp.Token, Grant: stamp.Grant, Seq: stamp.Seq}
}

// Admitted turns a guard's answer into a Result. The outcome is Unknown unless
// the guard clearly admitted or refused.
func Admitted(err error) Result {
	if err == nil {
		return Result{Outcome: OK}
	}
	out := Result{Outcome: Unknown, Error: err.Error()}
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		out.Outcome, out.Token, out.Grant = Stale, stale.Newest.Token, stale.Newest.Grant
	case errors.Is(err, fence.ErrRepeated):
		out.Outcome = Repeated
	case errors.Is(err, fence.ErrCollision), errors.Is(err, fence.ErrWrongKey):
		out.Outcome = Refused
	case errors.Is(err, fence.ErrInvalid):
		out.Outcome = Invalid
	}
	return out
}
