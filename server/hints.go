package server

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/croft-dev/croft/work"
)

// wake returns the hints of the ledger. If the ledger gives none, they are
// those of the requests that go through this server, and all is false.
func (l *ledger) wake(ctx context.Context, w work.Wanted) (woken <-chan struct{}, all bool, err error) {
	if waker, ok := l.Ledger.(work.Waker); ok {
		woken, err = waker.Wake(ctx, w)
		if !errors.Is(err, errors.ErrUnsupported) {
			return woken, err == nil, err
		}
	}
	return l.hints.wake(ctx, w), false, nil
}

// hints wakes the clients of this server, after requests of its clients. A
// SQLite file, for example, gives no hints of its own.
type hints struct {
	mu sync.Mutex
	// waiting has the clients by queue, so that a request costs nothing for
	// clients of other queues. Guarded by mu.
	waiting map[string]map[chan struct{}]struct{}
}

// forEffects stands for the effects among the queues. No queue has this name.
const forEffects = ""

// wake returns a channel that receives soon after something wanted may have
// become ready. It is closed when ctx ends.
func (h *hints) wake(ctx context.Context, w work.Wanted) <-chan struct{} {
	woken := make(chan struct{}, 1)
	wanted := slices.Clone(w.Queues)
	if w.Effects {
		wanted = append(wanted, forEffects)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = map[string]map[chan struct{}]struct{}{}
	}
	for _, name := range wanted {
		if h.waiting[name] == nil {
			h.waiting[name] = map[chan struct{}]struct{}{}
		}
		h.waiting[name][woken] = struct{}{}
	}
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, name := range wanted {
			delete(h.waiting[name], woken)
			if len(h.waiting[name]) == 0 {
				delete(h.waiting, name)
			}
		}
		close(woken)
	})
	return woken
}

// tell wakes the clients for which a request may have made something ready.
func (h *hints) tell(q work.Request, a work.Answer) {
	effects := q.Verb == work.Complete && len(q.Effects) > 0
	if a.Err != nil || a.Repeated || a.Item.State != work.Waiting && !effects {
		return
	}
	name := a.Item.Queue
	if effects {
		name = forEffects
	}
	h.changed(name)
}

// changed wakes the clients that wait for a queue, or for effects.
func (h *hints) changed(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for woken := range h.waiting[name] {
		select {
		case woken <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}
