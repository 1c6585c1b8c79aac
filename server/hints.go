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
	mu      sync.Mutex
	waiting map[*hinted]struct{} // guarded by mu
}

// hinted is a client that waits for hints.
type hinted struct {
	wanted work.Wanted
	woken  chan struct{}
}

// wake returns a channel that receives soon after something wanted may have
// become ready. It is closed when ctx ends.
func (h *hints) wake(ctx context.Context, w work.Wanted) <-chan struct{} {
	one := &hinted{w, make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = map[*hinted]struct{}{}
	}
	h.waiting[one] = struct{}{}
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiting, one)
		close(one.woken)
	})
	return one.woken
}

// tell wakes the clients for which a request may have made something ready.
func (h *hints) tell(q work.Request, a work.Answer) {
	effects := q.Verb == work.Complete && len(q.Effects) > 0
	if a.Err != nil || a.Repeated || a.Item.State != work.Waiting && !effects {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for one := range h.waiting {
		if effects && one.wanted.Effects || !effects && slices.Contains(one.wanted.Queues, a.Item.Queue) {
			select {
			case one.woken <- struct{}{}:
			default: // a wake-up is pending already
			}
		}
	}
}
