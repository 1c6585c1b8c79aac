package admission

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// checkCurrent refuses a write whose owner is not the current one. If the store
// cannot say, it refuses as well. With AdmitUnsure it calls admitted instead,
// and the mark decides.
func (g *Gate) checkCurrent(ctx context.Context, w Write, admitted func(error)) error {
	if g.Options.Current == nil || !w.Stamped {
		return nil
	}
	err := g.Options.Current.Check(ctx, w.Stamp)
	switch {
	case err == nil || errors.Is(err, fence.ErrInvalid):
		return err
	case errors.Is(err, tenure.ErrNotOwned):
		// If the mark refuses the stamp, too, return that: clients know
		// "stale".
		if stale := g.shutOutAsSeen(w); stale != nil {
			return stale
		}
		return err
	case g.Options.RefuseNothing || g.Options.AdmitUnsure && ctx.Err() == nil: // not if the client has left
		admitted(err)
		return nil
	}
	if ctx.Err() == nil {
		g.unsure(w, http.StatusServiceUnavailable, err)
	}
	return &Refusal{
		Status: http.StatusServiceUnavailable, Code: "unknown", Resource: w.Resource, Retry: time.Second, Err: err,
		Say: "the lease store does not say whether this owner is the current one; nothing was sent, try again",
	}
}

// shutOutAsSeen returns the refusal of a write by the newest mark that this
// gate has seen. It only words a refusal that the store has made.
func (g *Gate) shutOutAsSeen(w Write) error {
	g.mu.Lock()
	s := g.resources[w.Resource]
	g.mu.Unlock()
	if s == nil {
		return nil
	}
	if seen := s.seen.Load(); seen != nil {
		return shutOut(*seen, w.Stamp)
	}
	return nil
}
