package redis

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store"
)

// Watch wakes at every grant and release of the key. While this store stands in line for the key, which it does after an acquire that was refused while it watched, it is woken when its turn has come instead, and
// a moment later if whoever's turn it was has not taken the key (see line.go). All watches of a store share one connection; it reconnects by itself, and then wakes everybody, because nobody knows what was missed.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	_, woken, err := s.watch.join(ctx, s.names.record(key))
	return woken, err
}

// hub is the one pub/sub connection of a store and those who wait on it.
type hub struct {
	client goredis.UniversalClient
	id     string                                    // of the store among those who wait
	leaves func(ctx context.Context, names []string) // takes the store out of lines

	order   sync.Mutex // held while subscribing and unsubscribing, so that the server sees both in our order
	allowed bool       // the server has let this user subscribe to keys; under order
	mu      sync.Mutex
	conn    *goredis.PubSub // opened for the first watch
	topics  map[string]*topic
	watched atomic.Int64  // topics that somebody waits on
	kept    time.Duration // keptFor but in tests
	every   time.Duration // checkEvery but in tests
	checked string        // what is subscribed to once more to learn how many channels the connection has,
	due     int           // and how many it should
	over    bool
	ended   chan struct{} // closed when it is over
	done    sync.WaitGroup

	acts        turns.Acts // who listens to operators' acts, see acts.go
	actsName    string     // their channel
	actsAllowed bool       // the server has let this user subscribe to it; under order
}

// topic is one channel of Redis and who waits on it. A topic that nobody waits on any more is kept for a while: whoever has had the key is often back in line soon.
type topic struct {
	name      string
	waiters   map[chan struct{}]struct{}
	confirmed chan struct{} // closed when the server has confirmed the subscription: from then on nothing is missed
	known     bool
	placed    bool        // the store may have a place in line: it has asked for one, whether or not there was an answer
	inLine    time.Time   // when it was last given one; zero if it does not count on one
	grace     *time.Timer // until those who wait are woken although it was another's turn
	unused    *time.Timer // until the subscription ends
}

const (
	// keptFor is how long a subscription outlives its last watch, keptMost how many do.
	keptFor  = 10 * time.Second
	keptMost = 1000
	// checkEvery is how often it is made sure that the connection still has its channels.
	checkEvery = 15 * time.Second
)

func (h *hub) init(s *Store) {
	h.client, h.id, h.leaves, h.actsName = s.client, s.id, s.leave, s.names.acts()
	h.topics, h.kept, h.every, h.ended = map[string]*topic{}, keptFor, checkEvery, make(chan struct{})
}

func (h *hub) join(ctx context.Context, name string) (*topic, <-chan struct{}, error) {
	c := make(chan struct{}, 1) // one pending wake-up stands for any number of changes
	t, err := await(ctx, func() (*topic, error) {
		h.order.Lock()
		defer h.order.Unlock()
		t, err := h.subscribe(ctx, name, c)
		if err == nil {
			context.AfterFunc(ctx, func() { h.leave(t, c) }) // here, because whoever asked for it may have gone by now
		}
		return t, err
	})
	if err != nil {
		return nil, nil, store.Unknown(err)
	}
	select {
	case <-t.confirmed:
		return t, c, nil
	case <-ctx.Done():
		return nil, nil, store.Unknown(over(ctx))
	}
}

// subscribe adds a waiter to a topic and subscribes if it is the first. The caller holds order.
func (h *hub) subscribe(ctx context.Context, name string, c chan struct{}) (*topic, error) {
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return nil, store.Unknown(ErrClosed)
	}
	allowed := &h.allowed
	if name == h.actsName {
		allowed = &h.actsAllowed
	}
	if !*allowed {
		h.mu.Unlock()
		if err := h.ask(ctx, name, allowed); err != nil {
			return nil, err
		}
		h.mu.Lock()
		if h.over {
			h.mu.Unlock()
			return nil, store.Unknown(ErrClosed)
		}
	}
	if h.conn == nil {
		h.open()
	}
	t, first := h.topics[name], false
	if t == nil {
		t, first = &topic{name: name, waiters: map[chan struct{}]struct{}{}, confirmed: make(chan struct{})}, true
		h.topics[name] = t
	}
	if len(t.waiters) == 0 {
		stop(&t.unused)
		h.watched.Add(1)
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
		if !h.over {
			delete(h.topics, name) // with its one waiter
			h.watched.Add(-1)
		}
		h.mu.Unlock()
		_ = conn.Unsubscribe(context.WithoutCancel(ctx), name)
		return nil, store.Unknown(explain(err))
	}
	return t, nil
}

// ask asks the server whether this user may subscribe at all, until it has said so: go-redis keeps a refusal to itself, and the watch would wait for ever. The caller holds order.
func (h *hub) ask(ctx context.Context, name string, allowed *bool) error {
	probe := h.client.Subscribe(ctx, name)
	defer probe.Close()
	_, err := probe.ReceiveTimeout(ctx, readTimeout)
	if replied(err) {
		return store.Unknown(explain(err))
	}
	*allowed = err == nil // otherwise it cannot be reached now, which is another matter
	return nil
}

// open begins to listen. The caller holds mu.
func (h *hub) open() {
	h.conn = h.client.Subscribe(context.Background())
	events := h.conn.ChannelWithSubscriptions(goredis.WithChannelHealthCheckInterval(15 * time.Second))
	h.done.Go(func() {
		for event := range events {
			switch e := event.(type) {
			case *goredis.Subscription:
				if e.Kind == "subscribe" {
					h.confirm(e.Channel, e.Count)
				}
			case *goredis.Message:
				h.hear(e.Channel, e.Payload)
			}
		}
	})
	h.done.Go(func() {
		for {
			select {
			case <-time.After(h.every):
				h.check()
			case <-h.ended:
				return
			}
		}
	})
}

// check subscribes to a channel once more, because the server then says how many the connection has. A server that is busy with a script refuses to subscribe; go-redis keeps that to itself, and
// a connection made at such a time would be silent for as long as it lasts.
func (h *hub) check() {
	h.order.Lock()
	defer h.order.Unlock()
	h.mu.Lock()
	lost := h.checked == h.actsName && h.loseActs() // the last check had no answer
	h.checked, h.due = "", len(h.topics)
	for name, t := range h.topics {
		if len(t.waiters) > 0 {
			h.checked = name
			break
		}
	}
	if t := h.topics[h.actsName]; t != nil && len(t.waiters) > 0 {
		h.checked = h.actsName // any will do, and this one may be forbidden by now
	}
	conn, name := h.conn, h.checked
	h.mu.Unlock()
	if lost {
		h.actsAllowed = false
		_ = conn.Unsubscribe(context.Background(), h.actsName)
	}
	if name != "" {
		_ = conn.Subscribe(context.Background(), name) // the next check tries again
	}
}

// resubscribe subscribes to everything once more.
func (h *hub) resubscribe() {
	h.order.Lock()
	defer h.order.Unlock()
	h.mu.Lock()
	names := slices.Collect(maps.Keys(h.topics))
	conn := h.conn
	h.mu.Unlock()
	if len(names) > 0 {
		_ = conn.Subscribe(context.Background(), names...)
	}
}

// confirm notes that the server has begun to send, on so many channels. If it has done so before, the connection was lost in between, and with it perhaps a wake-up.
func (h *hub) confirm(name string, channels int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	check := name == h.checked
	if check {
		h.checked = ""
	}
	t := h.topics[name]
	switch {
	case t == nil:
	case t.known && check && channels >= h.due: // nothing was lost, as far as anybody can tell
	case t.known:
		t.wake()
		if check {
			go h.resubscribe()
		}
	default:
		t.known = true
		close(t.confirmed)
	}
}

// wake tells all who wait. The caller holds the hub's mutex.
func (t *topic) wake() {
	stop(&t.grace)
	for c := range t.waiters {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func stop(timer **time.Timer) {
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
}

// leave ends one watch. With the last of a topic the store leaves the line, and the subscription ends some time after.
func (h *hub) leave(t *topic, c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, waits := t.waiters[c]; !waits {
		return
	}
	delete(t.waiters, c)
	close(c) // under the mutex: nobody is waking it
	if len(t.waiters) > 0 {
		return
	}
	h.watched.Add(-1)
	stop(&t.grace)
	if t.placed {
		t.placed, t.inLine = false, time.Time{}
		h.stepOut(t.name)
	}
	keep := h.kept
	if len(h.topics)-int(h.watched.Load()) > keptMost {
		keep = 0
	}
	t.unused = time.AfterFunc(keep, func() { h.forget(t) })
}

// forget ends the subscription of a topic, unless somebody waits on it again.
func (h *hub) forget(t *topic) {
	h.order.Lock()
	defer h.order.Unlock()
	h.mu.Lock()
	unused := h.topics[t.name] == t && len(t.waiters) == 0
	if unused {
		delete(h.topics, t.name)
	}
	conn := h.conn
	h.mu.Unlock()
	if unused {
		_ = conn.Unsubscribe(context.Background(), t.name) // what cannot be sent is not subscribed to after the next connection
	}
}

// close ends all watches and the connection.
func (h *hub) close() {
	h.mu.Lock()
	h.over = true
	close(h.ended)
	var lines []string
	for _, t := range h.topics {
		stop(&t.grace)
		stop(&t.unused)
		if t.placed {
			lines = append(lines, t.name)
		}
		for c := range t.waiters {
			delete(t.waiters, c)
			close(c)
		}
		if !t.known {
			close(t.confirmed) // and its channel is closed
		}
	}
	h.topics = nil
	h.watched.Store(0)
	h.acts.End()
	conn := h.conn
	h.mu.Unlock()
	if len(lines) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, _ = await(ctx, func() (struct{}, error) { h.leaves(ctx, lines); return struct{}{}, nil })
		cancel()
	}
	if conn != nil {
		_ = conn.Close()
	}
	h.done.Wait()
}
