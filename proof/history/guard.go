package history

import (
	"context"
	"errors"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// Guard is a guarded resource whose raises are written about. Writes look different in every place, so [Recorder.Write] is for those who make them.
type Guard struct {
	guard.Guard
	r *Recorder
}

// NewGuard records the raises at a guard.
func (r *Recorder) NewGuard(g guard.Guard) *Guard { return &Guard{Guard: g, r: r} }

// Raise raises the fence.
func (g *Guard) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	id := g.r.Begin(presented(Raise, stamp))
	mark, err := g.Guard.Raise(ctx, stamp)
	g.r.End(id, Admitted(err))
	return mark, err
}

// Write records one copy of a write: an update made from the prior one, under a stamp. A write without a guard has a stamp all the same, which says whose it was.
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

// Admitted is what a guard's answer means. Whatever is not clearly a refusal may have taken effect.
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
