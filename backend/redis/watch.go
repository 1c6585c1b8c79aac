package redis

import (
	"context"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

// Watch wakes at every grant and release of the key. All watches of a store share one connection; it reconnects by itself, and then wakes everybody, because nobody
// knows what was missed.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.watch.join(ctx, s.names.record(key))
}

// hub is the one pub/sub connection of a store and those who wait on it.
type hub struct {
	client goredis.UniversalClient

	order sync.Mutex // held while subscribing and unsubscribing, so that the server sees both in our order
	mu    sync.Mutex
	conn  *goredis.PubSub // opened for the first watch
	topic map[string]*topic
	over  bool
	done  sync.WaitGroup
}

// topic is one channel of Redis and who waits on it.
type topic struct {
	waiters   map[chan struct{}]struct{}
	confirmed chan struct{} // closed when the server has confirmed the subscription: from then on nothing is missed
	known     bool
}

func (h *hub) join(ctx context.Context, name string) (<-chan struct{}, error) {
	c := make(chan struct{}, 1) // one pending wake-up stands for any number of changes
	t, err := await(ctx, func() (*topic, error) {
		h.order.Lock()
		t, err := h.subscribe(ctx, name, c)
		h.order.Unlock()
		if err == nil && ctx.Err() != nil {
			h.leave(name, c) // nobody is waiting for it any more
		}
		return t, err
	})
	if err != nil {
		return nil, store.Unknown(err)
	}
	select {
	case <-t.confirmed:
	case <-ctx.Done():
		h.leave(name, c)
		return nil, store.Unknown(over(ctx))
	}
	context.AfterFunc(ctx, func() { h.leave(name, c) })
	return c, nil
}

// subscribe adds a waiter to a topic and subscribes if it is the first. The caller holds order.
func (h *hub) subscribe(ctx context.Context, name string, c chan struct{}) (*topic, error) {
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return nil, store.Unknown(ErrClosed)
	}
	if h.conn == nil {
		h.open()
	}
	t, first := h.topic[name], false
	if t == nil {
		t, first = &topic{waiters: map[chan struct{}]struct{}{}, confirmed: make(chan struct{})}, true
		h.topic[name] = t
	}
	t.waiters[c] = struct{}{}
	conn := h.conn
	h.mu.Unlock()
	if !first {
		return t, nil
	}
	// Not under the caller's context: go-redis remembers the channel also when it fails and subscribes when it reconnects.
	if err := conn.Subscribe(context.WithoutCancel(ctx), name); err != nil {
		h.mu.Lock()
		delete(h.topic, name) // with its one waiter
		h.mu.Unlock()
		_ = conn.Unsubscribe(context.WithoutCancel(ctx), name)
		return nil, store.Unknown(explain(err))
	}
	return t, nil
}

// open begins to listen. The caller holds mu.
func (h *hub) open() {
	h.conn, h.topic = h.client.Subscribe(context.Background()), map[string]*topic{}
	events := h.conn.ChannelWithSubscriptions(goredis.WithChannelHealthCheckInterval(15 * time.Second))
	h.done.Go(func() {
		for event := range events {
			switch e := event.(type) {
			case *goredis.Subscription:
				if e.Kind == "subscribe" {
					h.confirm(e.Channel)
				}
			case *goredis.Message:
				h.wake(e.Channel)
			}
		}
	})
}

// confirm notes that the server has begun to send. If it has done so before, the connection was lost in between, and with it perhaps a wake-up.
func (h *hub) confirm(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topic[name]
	switch {
	case t == nil:
	case t.known:
		t.wake()
	default:
		t.known = true
		close(t.confirmed)
	}
}

func (h *hub) wake(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topic[name]; t != nil {
		t.wake()
	}
}

// wake tells all who wait. The caller holds the hub's mutex.
func (t *topic) wake() {
	for c := range t.waiters {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// leave ends one watch, and the subscription with the last.
func (h *hub) leave(name string, c chan struct{}) {
	h.order.Lock()
	defer h.order.Unlock()
	h.mu.Lock()
	t := h.topic[name]
	if t == nil {
		h.mu.Unlock()
		return
	}
	if _, waits := t.waiters[c]; !waits {
		h.mu.Unlock()
		return
	}
	delete(t.waiters, c)
	close(c) // under the mutex: nobody is waking it
	last, conn := len(t.waiters) == 0, h.conn
	if last {
		delete(h.topic, name)
	}
	h.mu.Unlock()
	if last {
		_ = conn.Unsubscribe(context.Background(), name) // what cannot be sent is not subscribed to after the next connection
	}
}

// close ends all watches and the connection.
func (h *hub) close() {
	h.mu.Lock()
	h.over = true
	for _, t := range h.topic {
		for c := range t.waiters {
			close(c)
		}
		if !t.known {
			close(t.confirmed) // and its channel is closed
		}
	}
	h.topic = nil
	conn := h.conn
	h.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
	h.done.Wait()
}
