package httpfence

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// current refuses a write whose owner is not the current one. It is unsure if
// that cannot be told: then the error is the refusal for those who need to know.
func (g *Gate) current(ctx context.Context, w write) (unsure bool, err error) {
	if g.o.Current == nil || !w.stamped {
		return false, nil
	}
	err = g.o.Current.Check(ctx, w.stamp)
	switch {
	case err == nil || errors.Is(err, fence.ErrInvalid):
		return false, err
	case errors.Is(err, tenure.ErrNotOwned):
		// What the mark says of the stamp has always been told as it is.
		if stale := g.shutOut(w); stale != nil {
			return false, stale
		}
		return false, err
	}
	return true, &refusal{
		status: http.StatusServiceUnavailable, code: "unknown", resource: w.resource, retry: time.Second, err: err,
		say: "the lease store does not say whether this owner is the current one; nothing was sent, try again",
	}
}

// shutOut is the refusal of a write by the newest mark that this gate has seen.
func (g *Gate) shutOut(w write) error {
	g.mu.Lock()
	s := g.slots[w.resource]
	g.mu.Unlock()
	if s == nil {
		return nil
	}
	if seen := s.seen.Load(); seen != nil {
		return shutOut(*seen, w.stamp)
	}
	return nil
}
