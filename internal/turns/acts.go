package turns

import (
	"context"
	"sync"
)

// room is how many keys may wait in a listener's channel. Stores tell of a
// whole batch of acts at once, so it is as large as a large batch. If the
// channel is full, further keys are dropped: they are only hints.
const room = 1024

// Acts tells listeners on which keys operators have acted. The zero Acts is
// ready to use. It is safe for concurrent use.
type Acts struct {
	mu        sync.Mutex
	listeners map[chan string]struct{}
}

// Listen returns a channel of keys. It is closed when ctx ends, or by End.
func (a *Acts) Listen(ctx context.Context) <-chan string {
	c := make(chan string, room)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listeners == nil {
		a.listeners = map[chan string]struct{}{}
	}
	a.listeners[c] = struct{}{}
	context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.remove(c)
	})
	return c
}

// Heard reports whether anybody listens.
func (a *Acts) Heard() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.listeners) > 0
}

// Tell tells every listener of a key.
func (a *Acts) Tell(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.listeners {
		select {
		case c <- key:
		default:
		}
	}
}

// End closes the channels of all listeners. New listeners may follow.
func (a *Acts) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.listeners {
		a.remove(c)
	}
}

// remove closes a listener's channel, once. The caller holds the mutex, so that
// nobody sends to it.
func (a *Acts) remove(c chan string) {
	if _, listens := a.listeners[c]; listens {
		delete(a.listeners, c)
		close(c)
	}
}
