package etcd

import (
	"context"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// grace is how long the others leave a freed key to the store that it is offered to. A waiter that died or hangs delays them by no more.
	grace = 100 * time.Millisecond
	// settled is when those who wait are told that the key has been granted to somebody: it is of no use to them, and so not urgent.
	settled = time.Second
)

// topic is a key that somebody in this store waits for. Its watch is opened at the present revision: etcd serves one that begins in the past only ten times a second.
type topic struct {
	key     string
	waiters map[chan struct{}]struct{}
	ready   chan struct{} // closed when etcd has begun to tell of changes: from then on nothing is missed
	end     context.CancelFunc
	queued  bool          // this store is in the key's queue
	turn    chan struct{} // held while it enters the queue or leaves it
	pending *time.Timer   // a wake-up to come, unless something newer is heard before
}

// Watch wakes after every change of the key. A key that was freed is offered to one store at a time: the others are woken a little later, and only if nothing has become of it. All watches of a client share one
// stream; it is made again by itself, and then everybody is woken, because nobody knows what was missed.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	c := make(chan struct{}, 1) // one pending wake-up stands for any number of changes
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		return nil, store.Unknown(ErrClosed)
	}
	t := s.waits[key]
	if t == nil {
		t = &topic{key: key, waiters: map[chan struct{}]struct{}{}, ready: make(chan struct{}), turn: make(chan struct{}, 1)}
		s.waits[key] = t
		var life context.Context
		life, t.end = context.WithCancel(s.life)
		s.done.Go(func() { s.listen(life, t) })
	}
	t.waiters[c] = struct{}{}
	s.mu.Unlock()
	select {
	case <-t.ready:
	case <-ctx.Done():
		s.unwatch(t, c)
		return nil, store.Unknown(over(ctx))
	}
	context.AfterFunc(ctx, func() { s.unwatch(t, c) })
	return c, nil
}

// unwatch ends one watch, and the topic with the last.
func (s *Store) unwatch(t *topic, c chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := t.waiters[c]; !waits {
		return
	}
	delete(t.waiters, c)
	close(c) // under the mutex: nobody is waking it
	if len(t.waiters) > 0 {
		return
	}
	t.stop()
	if s.waits[t.key] == t {
		delete(s.waits, t.key)
	}
	if t.queued && !s.closed.Load() {
		s.done.Go(func() { s.dequeue(t) })
	}
}

// stop ends what a topic does. The caller holds the mutex.
func (t *topic) stop() {
	t.end()
	if t.pending != nil {
		t.pending.Stop()
	}
}

// closeTopics ends all watches.
func (s *Store) closeTopics() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, t := range s.waits {
		t.stop()
		for c := range t.waiters {
			close(c)
		}
		t.waiters = nil
		select {
		case <-t.ready:
		default:
			close(t.ready) // and its channel is closed
		}
		delete(s.waits, key)
	}
}

// listen hears of the changes of a topic's key until it ends.
func (s *Store) listen(ctx context.Context, t *topic) {
	for known := false; ctx.Err() == nil; {
		watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for resp := range s.client.Watch(watching, s.names.record(t.key), clientv3.WithCreatedNotify()) {
			if resp.Created && resp.Err() == nil {
				s.begin(t, known)
				known = true
			}
			for _, e := range resp.Events {
				s.heard(t, e)
			}
		}
		cancel()
		// It was cancelled: no leader, or a compaction overtook it. What it missed is made up for by a wake-up when it begins again.
		select {
		case <-ctx.Done():
		case <-time.After(grace + rand.N(grace)):
		}
	}
}

// begin notes that changes are told from now on.
func (s *Store) begin(t *topic, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if again {
		t.wake()
	} else if s.waits[t.key] == t {
		close(t.ready)
	}
	s.enqueue(t)
}

// wake tells all who wait. The caller holds the mutex.
func (t *topic) wake() {
	if t.pending != nil {
		t.pending.Stop()
		t.pending = nil
	}
	for c := range t.waiters {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// later wakes after a while, unless something newer is heard. The caller holds the mutex.
func (s *Store) later(t *topic, d time.Duration) {
	if t.pending != nil {
		t.pending.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(d+rand.N(d), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.pending == timer {
			t.wake()
		}
	})
	t.pending = timer
}

// heard takes in one change.
func (s *Store) heard(t *topic, e *clientv3.Event) {
	var d *deed
	var v *view
	if e.Type == clientv3.EventTypePut {
		var err error
		if d, err = decodeDeed(t.key, e.Kv.Value); err != nil {
			d = nil // whoever asks is told
		} else {
			s.clocks.saw(d.clock, d.written)
			v = &view{mod: e.Kv.ModRevision, asOf: e.Kv.ModRevision, deed: d}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits[t.key] != t {
		return
	}
	if v != nil {
		s.remember(t.key, v)
	}
	switch {
	case d == nil || d.rec.State == tenure.Reserved || d.rec.State == tenure.Free && d.next == 0:
		t.wake()
	case d.rec.State == tenure.Held:
		s.later(t, settled)
		if d.page.store == s.id { // its own: whoever else waits here queues when it is freed
			return
		}
	case d.next == s.id:
		t.queued = false // it was taken off
		t.wake()
		return
	default:
		s.later(t, grace)
	}
	s.enqueue(t)
}
