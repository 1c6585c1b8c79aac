package turns

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

const (
	// keptFor is how long a subscription outlives its last waiter. keptMost
	// limits how many subscriptions without waiters there are.
	keptFor  = 10 * time.Second
	keptMost = 1000
	// queueTimeout limits how long entering or leaving a queue may take.
	queueTimeout = 10 * time.Second
)

var (
	// ErrEnded is returned by Watch and Listen once the hub has ended.
	ErrEnded = errors.New("the store is closed")
	errBroke = errors.New("the connection for hints has just been lost; ask again")
)

// Driver connects a hub with a server. The hub makes one call of Subscribe or
// Unsubscribe at a time.
type Driver interface {
	// Subscribe begins to pass on the server's messages about a key. The driver
	// calls Hub.Opened as soon as no later message can be missed.
	Subscribe(ctx context.Context, key string) error
	// Unsubscribe ends that. The hub may call it after Hub.Broke, Hub.Lose and
	// Hub.End, and for a key that is no longer subscribed to.
	Unsubscribe(key string)
}

// Queuer is a driver of a server that keeps queues.
type Queuer interface {
	Driver
	// Enter puts the store into the queue of a key, or keeps its position
	// there. It reports whether there was room.
	Enter(ctx context.Context, key string) (queued bool, err error)
	// StepOut takes the store out of the queues of keys. It only saves others a
	// wait: nothing depends on it.
	StepOut(ctx context.Context, keys []string)
}

// Hub has the Queues of all keys that callers of one store wait for. It is safe
// for concurrent use.
type Hub struct {
	// Kept is how long the hub keeps a subscription after its last waiter has
	// left. A store that had the key often waits for it again soon. It may be
	// 0. Change it only before the first Watch.
	Kept time.Duration
	// Closed is the error of Watch and Listen once the hub has ended; default
	// ErrEnded. Change it only before the first Watch.
	Closed error

	driver Driver
	queuer Queuer // nil if the server keeps no queues
	clk    clock.Clock
	order  sync.Mutex   // held while subscribing and unsubscribing
	waited atomic.Int64 // number of keys that somebody waits for

	mu    sync.Mutex
	keys  map[string]*entry
	ended bool
	work  sync.WaitGroup // goroutines in the background
}

// entry is a key or topic that is subscribed to.
type entry struct {
	Queue
	key    string
	plain  bool          // it is a topic, or the server keeps no queues
	acts   Acts          // the listeners, if it is a topic
	opened chan struct{} // closed when messages come, or never will
	open   bool
	err    error       // why messages never will come
	timer  *time.Timer // until the Queue is due
	unused *time.Timer // until the subscription ends
}

// NewHub makes a hub.
func NewHub(d Driver) *Hub {
	h := &Hub{driver: d, clk: clock.System(), Kept: keptFor, Closed: ErrEnded, keys: map[string]*entry{}}
	h.queuer, _ = d.(Queuer)
	return h
}

// Watch returns a channel that receives when the key may be free. From when
// Watch returns, no message is missed. The channel is closed when ctx ends, or
// when no more hints come. Errors match [store.ErrUnknown].
func (h *Hub) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	_, c, err := h.watch(ctx, key, h.queuer == nil)
	return c, h.explain(ctx, err)
}

// explain makes an error ready for the caller of a store.
func (h *Hub) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = wait.Ended(ctx)
	case errors.Is(err, ErrEnded):
		err = h.Closed
	}
	return store.Unknown(err)
}

// Listen returns a channel of the keys on which operators have acted, as Acted
// tells them. topic is the name to subscribe to. Errors match
// [store.ErrUnknown].
func (h *Hub) Listen(ctx context.Context, topic string) (<-chan string, error) {
	e, _, err := h.watch(ctx, topic, true)
	if err != nil {
		return nil, h.explain(ctx, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys[topic] != e {
		return nil, store.Unknown(errBroke)
	}
	return e.acts.Listen(ctx), nil
}

// Acted tells the listeners of a topic that an operator has acted on a key.
func (h *Hub) Acted(topic, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.keys[topic]; e != nil {
		e.acts.Tell(key)
	}
}

func (h *Hub) watch(ctx context.Context, key string, plain bool) (*entry, <-chan struct{}, error) {
	c := make(chan struct{}, 1)
	joined := make(chan *entry, 1)
	// In the background: a server that hangs must not delay this caller beyond
	// ctx.
	if !h.begin(func() { joined <- h.join(ctx, key, plain, c) }) {
		return nil, nil, ErrEnded
	}
	var e *entry
	select {
	case e = <-joined:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	select {
	case <-e.opened:
		if e.err != nil {
			return nil, nil, e.err
		}
		return e, c, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// begin runs a function in the background, unless the hub has ended.
func (h *Hub) begin(run func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.work.Go(run)
	}
	return !h.ended
}

// join adds a waiter, and subscribes to the key if it is the first waiter.
func (h *Hub) join(ctx context.Context, key string, plain bool, c chan struct{}) *entry {
	h.order.Lock()
	defer h.order.Unlock()
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		e := &entry{opened: make(chan struct{}), err: ErrEnded}
		close(e.opened)
		return e
	}
	e := h.keys[key]
	first := e == nil
	if first {
		e = &entry{Queue: newQueue(), key: key, plain: plain, opened: make(chan struct{})}
		h.keys[key] = e
	}
	if !e.Waited() {
		stop(&e.unused)
		h.waited.Add(1)
	}
	e.Join(h.clk.Now(), c)
	h.setTimer(e)
	context.AfterFunc(ctx, func() { h.leave(e, c) })
	h.mu.Unlock()
	if first {
		h.subscribe(ctx, e)
	}
	return e
}

// subscribe subscribes to a key. If that fails, it forgets the key. If the hub
// has dropped the key meanwhile, it unsubscribes, because nobody else would.
func (h *Hub) subscribe(ctx context.Context, e *entry) {
	err := h.driver.Subscribe(ctx, e.key)
	h.mu.Lock()
	lost := h.keys[e.key] != e
	if err != nil && !lost {
		h.drop(e, err)
	}
	h.mu.Unlock()
	if err == nil && lost {
		h.driver.Unsubscribe(e.key)
	}
}

// leave ends one wait. After the last wait for a key, the store steps out of
// the queue, and the subscription ends some time later.
func (h *Hub) leave(e *entry, c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	waited := e.Waited()
	if e.Leave(c) {
		h.stepOut(e.key)
	}
	if !waited || e.Waited() || h.keys[e.key] != e {
		return
	}
	h.waited.Add(-1)
	h.setTimer(e)
	kept := h.Kept
	if len(h.keys)-int(h.waited.Load()) > keptMost {
		kept = 0
	}
	e.unused = time.AfterFunc(kept, func() { h.forget(e) })
}

// forget ends the subscription to a key, unless somebody waits for it again.
func (h *Hub) forget(e *entry) {
	h.order.Lock()
	defer h.order.Unlock()
	h.mu.Lock()
	unused := h.keys[e.key] == e && !e.Waited()
	if unused {
		delete(h.keys, e.key)
	}
	h.mu.Unlock()
	if unused {
		h.driver.Unsubscribe(e.key)
	}
}

// Watches reports whether somebody waits for a key. Then an acquire should ask
// for a position in the queue. While nobody waits for any key, it costs next to
// nothing.
func (h *Hub) Watches(key string) bool {
	if h.waited.Load() == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.keys[key]
	return e != nil && e.open && e.Ask()
}

// Refused notes that an acquire was refused. inQueue says that the server has
// put this store into the queue.
func (h *Hub) Refused(key string, inQueue bool) {
	if !inQueue {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.keys[key]
	if e == nil {
		h.stepOut(key)
		return
	}
	if e.Refused(h.clk.Now(), inQueue) {
		h.stepOut(key)
	}
	h.setTimer(e)
}

// Queued reports whether the store believes that it has a position in the queue
// of a key.
func (h *Hub) Queued(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.keys[key]
	return e != nil && h.clk.Now() < e.until
}

// Granted notes that an acquire was granted.
func (h *Hub) Granted(key string) {
	if h.waited.Load() > 0 {
		h.tell(key, (*Queue).Granted)
	}
}

// Changed says that a key may have changed.
func (h *Hub) Changed(key string) { h.tell(key, func(q *Queue, _ clock.Instant) { q.Changed() }) }

// Freed says that a key is free. mine says that the server has named this
// store.
func (h *Hub) Freed(key string, mine bool) {
	h.tell(key, func(q *Queue, now clock.Instant) { q.Freed(now, mine, rand.Float64()) })
}

// Taken says that a key was granted to somebody.
func (h *Hub) Taken(key string) { h.tell(key, (*Queue).Taken) }

// tell gives a Queue an event.
func (h *Hub) tell(key string, what func(q *Queue, now clock.Instant)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.keys[key]; e != nil {
		what(&e.Queue, h.clk.Now())
		h.setTimer(e)
	}
}

// setTimer sets the timer of a Queue to when it is due. The caller holds the
// mutex.
func (h *Hub) setTimer(e *entry) {
	stop(&e.timer)
	due := e.Due()
	if due == clock.Never || e.plain {
		return
	}
	e.timer = time.AfterFunc(due.Sub(h.clk.Now()), func() { h.tick(e) })
}

// tick gives a Queue a Tick.
func (h *Hub) tick(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys[e.key] != e || h.ended {
		return
	}
	if e.Tick(h.clk.Now()) {
		h.enter(e)
	}
	h.setTimer(e)
}

// enter enters the queue of a key, in the background. The caller holds the
// mutex.
func (h *Hub) enter(e *entry) {
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), queueTimeout)
		defer cancel()
		queued, err := h.queuer.Enter(ctx, e.key)
		h.mu.Lock()
		defer h.mu.Unlock()
		stepOut := e.Entered(h.clk.Now(), queued && err == nil)
		// After an error the store may be in the queue or not.
		if stepOut || err != nil && !e.Waited() {
			h.stepOut(e.key)
		}
		if h.keys[e.key] == e {
			h.setTimer(e)
		}
	})
}

// stepOut leaves the queue of a key, in the background. The caller holds the
// mutex.
func (h *Hub) stepOut(key string) {
	if h.ended || h.queuer == nil {
		return
	}
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), queueTimeout)
		defer cancel()
		h.queuer.StepOut(ctx, []string{key})
		h.tell(key, (*Queue).Dequeued) // somebody may wait again by now
	})
}

// Opened says that messages about a key come from now on. If it is called
// again, the messages had stopped meanwhile, and some may have been missed.
func (h *Hub) Opened(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e := h.keys[key]; {
	case e == nil:
	case e.open:
		e.Changed()
	default:
		e.open = true
		close(e.opened)
	}
}

// Keys lists the subscribed keys: those with waiters, and those without.
func (h *Hub) Keys() (waited, unused []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, e := range h.keys {
		if e.Waited() {
			waited = append(waited, key)
		} else {
			unused = append(unused, key)
		}
	}
	return waited, unused
}

// Lose says that no more messages about a key or topic come. It ends all waits
// for it.
func (h *Hub) Lose(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.keys[key]; e != nil {
		h.drop(e, errBroke)
	}
}

// InOrder runs a function while no call of Subscribe or Unsubscribe is under
// way.
func (h *Hub) InOrder(run func()) {
	h.order.Lock()
	defer h.order.Unlock()
	run()
}

// Broke says that no more messages come at all. It ends all waits. New ones may
// begin.
func (h *Hub) Broke() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.keys {
		h.drop(e, errBroke)
	}
}

// drop forgets a key and ends all waits for it. It reports whether the store
// may have a position in the queue. The caller holds the mutex.
func (h *Hub) drop(e *entry, why error) (queued bool) {
	stop(&e.timer)
	stop(&e.unused)
	if e.Waited() {
		h.waited.Add(-1)
	}
	if !e.open {
		e.err = why
		close(e.opened)
	}
	delete(h.keys, e.key)
	e.acts.End()
	return e.End()
}

// End ends all waits for good, and steps out of all queues. First it waits for
// the goroutines in the background, which may be entering a queue. It returns
// when ctx ends, at the latest.
func (h *Hub) End(ctx context.Context) {
	h.mu.Lock()
	h.ended = true
	var queues []string
	for key, e := range h.keys {
		if h.drop(e, ErrEnded) {
			queues = append(queues, key)
		}
	}
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.work.Wait()
		if len(queues) > 0 && h.queuer != nil {
			h.queuer.StepOut(ctx, queues)
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func stop(timer **time.Timer) {
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
}
