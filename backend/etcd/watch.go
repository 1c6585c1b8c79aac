package etcd

import (
	"context"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// grace is how long the second in a queue leaves a freed key to the first.
	// A first store that is dead or hangs delays it no longer.
	grace = 100 * time.Millisecond
	// pollFirst and pollLast are the shortest and longest pause between polls
	// of a key without events. Waiting stores are not told of every change.
	pollFirst, pollLast = time.Second, 8 * time.Second
	// linger is how long a watch stays open after its last waiter. The next
	// waiter finds it open.
	linger = 15 * time.Second
	// maxTopics bounds how many watches stay open for that.
	maxTopics = 1024
)

// topic is a key for which callers of this store wait, or did lately. It
// watches this store's own queue entry. The watch begins at the present
// revision, because etcd serves watches that begin in the past only ten times a
// second. The store's mutex protects it, except lock.
type topic struct {
	key        string
	waiters    map[chan struct{}]struct{}
	ready      chan struct{} // closed when the watch has begun
	begun      bool
	end        context.CancelFunc
	restart    context.CancelFunc // ends the watch; watchEntry opens another
	queued     bool               // this store is in the key's queue, or joining
	joinedAt   int64              // revision at which it joined last,
	leftAt     int64              // and at which it left last
	lock       chan struct{}      // held while it joins the queue or leaves it
	wakeTimer  *time.Timer        // wakes the waiters unless an event comes first
	pollTimer  *time.Timer        // polls the key
	pollPause  time.Duration      // the pause before that poll
	closeTimer *time.Timer        // ends the topic some time after its last waiter
	missedWake bool               // a wake-up came when no caller waited
	bid        *ownBid            // the bid in this store's entry
	returnedAt time.Time          // when an award was returned: no bids for a while
}

// Watch wakes when the key is freed and it is this store's turn. It wakes a
// little later if the store whose turn it was does not come, and some time
// after any other change. All watches of a client share one stream. If the
// stream breaks, the client opens it again and wakes all waiters, because they
// may have missed something.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	c := make(chan struct{}, 1) // one pending wake-up is enough
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		return nil, store.Unknown(ErrClosed)
	}
	t := s.topics[key]
	if t == nil {
		t = &topic{
			key: key, waiters: map[chan struct{}]struct{}{},
			ready: make(chan struct{}), lock: make(chan struct{}, 1),
		}
		s.topics[key] = t
		var life context.Context
		life, t.end = context.WithCancel(s.life)
		s.done.Go(func() { s.watchEntry(life, t) })
	}
	if t.closeTimer != nil {
		t.closeTimer.Stop()
		t.closeTimer = nil
	}
	t.waiters[c] = struct{}{}
	if t.missedWake {
		t.wake()
	}
	s.schedulePoll(t, pollFirst)
	if t.begun {
		s.enqueue(t)
	}
	s.mu.Unlock()
	select {
	case <-t.ready:
	case <-ctx.Done():
		s.unwatch(t, c)
		return nil, store.Unknown(wait.Ended(ctx))
	}
	context.AfterFunc(ctx, func() { s.unwatch(t, c) })
	return c, nil
}

// Sees reports that a watch also wakes if the key changed between its refusal
// and the beginning of the watch: see [store.Lookout].
func (s *Store) Sees() bool { return true }

// unwatch ends one watch. The topic ends some time after its last watch.
func (s *Store) unwatch(t *topic, c chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := t.waiters[c]; !waits {
		return
	}
	delete(t.waiters, c)
	close(c) // under the mutex, so nobody sends on it
	if len(t.waiters) > 0 || s.closed.Load() {
		return
	}
	t.stopTimers()
	if t.queued {
		s.done.Go(func() { s.dequeue(t) })
	}
	s.returnSoon(s.unclaimedAward(t.key))
	if len(s.topics) > maxTopics {
		s.endTopic(t)
		return
	}
	t.closeTimer = time.AfterFunc(s.linger, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(t.waiters) == 0 {
			// It could not be deleted, but is too old to be awarded anything.
			s.dropBid(t)
			s.endTopic(t)
		}
	})
}

// endTopic ends a topic. The caller holds the mutex.
func (s *Store) endTopic(t *topic) {
	t.stopTimers()
	t.end()
	if t.closeTimer != nil {
		t.closeTimer.Stop()
	}
	if s.topics[t.key] == t {
		delete(s.topics, t.key)
	}
}

// stopTimers stops the timers that would wake waiters or poll. The caller holds
// the mutex.
func (t *topic) stopTimers() {
	for _, timer := range []*time.Timer{t.wakeTimer, t.pollTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
	t.wakeTimer, t.pollTimer = nil, nil
}

// closeTopics ends all topics and closes the channels of their waiters.
func (s *Store) closeTopics() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.topics {
		s.endTopic(t)
		s.dropBid(t)
		for c := range t.waiters {
			close(c)
		}
		t.waiters = nil
		if !t.begun {
			t.begun = true
			close(t.ready) // Watch returns a closed channel
		}
	}
}

// watchEntry watches this store's queue entry until the topic ends.
func (s *Store) watchEntry(ctx context.Context, t *topic) {
	for ctx.Err() == nil {
		watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		s.mu.Lock()
		t.restart = cancel
		s.mu.Unlock()
		for resp := range s.client.Watch(watching, s.names.waiter(t.key, s.id), clientv3.WithCreatedNotify()) {
			if resp.Created && resp.Err() == nil {
				s.watchBegan(t)
			}
			for _, e := range resp.Events {
				s.entryChanged(t, e)
			}
		}
		cancel()
		// The watch was cancelled: etcd lost its leader or was compacted. The
		// next watch begins with a wake-up, because events may have been
		// missed.
		select {
		case <-ctx.Done():
		case <-time.After(grace + rand.N(grace)):
		}
	}
}

// watchBegan notes that etcd reports changes from now on.
func (s *Store) watchBegan(t *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.topics[t.key] != t:
		return
	case t.begun:
		t.queued = false // the entry may have been deleted meanwhile
		t.wake()
		// No caller is here to find out whether the bid was awarded.
		if t.bid != nil && t.missedWake && !s.closed.Load() {
			s.done.Go(func() { s.poll(s.life, t) })
		}
	default:
		t.begun = true
		close(t.ready)
	}
	s.enqueue(t)
}

// lostEntry notes that this store's entry is gone, and makes the waiters ask.
// The caller holds the mutex.
func (s *Store) lostEntry(t *topic) {
	t.queued = false
	s.dropBid(t)
	t.wake()
}

// wake wakes all waiters. The caller holds the mutex.
func (t *topic) wake() {
	if t.wakeTimer != nil {
		t.wakeTimer.Stop()
		t.wakeTimer = nil
	}
	t.missedWake = len(t.waiters) == 0
	for c := range t.waiters {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// wakeLater wakes the waiters after a while, unless an event comes first. The
// caller holds the mutex.
func (s *Store) wakeLater(t *topic, d time.Duration) {
	if t.wakeTimer != nil {
		t.wakeTimer.Stop()
	}
	if len(t.waiters) == 0 {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(d+rand.N(d), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.wakeTimer == timer {
			t.wake()
		}
	})
	t.wakeTimer = timer
}

// entryChanged handles an event of this store's queue entry.
func (s *Store) entryChanged(t *topic, e *clientv3.Event) {
	var d *storedRecord
	// A record in the entry: the key is offered to this store, or awarded.
	if told := e.Type == clientv3.EventTypePut && len(e.Kv.Value) > 0 && e.Kv.Value[0] == recordFormat; told {
		var err error
		if d, err = decodeRecord(t.key, e.Kv.Value); err != nil {
			d = nil // damaged: the next request reports it
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[t.key] != t {
		return
	}
	s.schedulePoll(t, pollFirst)
	switch {
	case e.Type == clientv3.EventTypeDelete:
		switch {
		case e.Kv.ModRevision <= max(t.leftAt, t.joinedAt):
			// The grant deleted it, or this store has joined again.
		case !t.queued:
			// The waiters were woken when their turn came, or are joining and
			// will read the key then.
			t.leftAt = e.Kv.ModRevision
		default:
			t.leftAt = e.Kv.ModRevision
			s.lostEntry(t)
		}
	case len(e.Kv.Value) == 0 || isBid(e.Kv.Value): // this store has joined
	case e.Kv.Value[0] == youAreNext[0]:
		if t.bid != nil && t.joinedAt < e.Kv.ModRevision {
			t.bid.mod = e.Kv.ModRevision
		}
		s.wakeLater(t, grace)
	default:
		if d != nil {
			s.addView(t.key, &view{mod: e.Kv.ModRevision, asOf: e.Kv.ModRevision, stored: d})
		}
		if t.joinedAt < e.Kv.ModRevision { // otherwise it has joined again
			t.queued = false
			s.dropBid(t) // unless it was awarded
		}
		t.wake()
		if t.missedWake { // a caller that was just refused may be about to wait
			s.returnSoon(s.unclaimedAward(t.key))
			if d != nil && d.rec.State == tenure.Free {
				time.AfterFunc(headStart, func() { s.passOn(t, e.Kv.ModRevision, d) })
			}
		}
	}
}

// passOn offers a key to the next in the queue if no caller here waits for it
// any more.
func (s *Store) passOn(t *topic, revision int64, d *storedRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.missedWake || s.closed.Load() {
		return
	}
	t.missedWake = false
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, requestTimeout)
		defer cancel()
		if _, err := s.client.Delete(ctx, s.names.waiter(t.key, s.id)); err == nil {
			s.offerLater(t.key, revision, d, successors{})
		}
	})
}

// schedulePoll polls the key after about d, if callers wait. The caller holds
// the mutex.
func (s *Store) schedulePoll(t *topic, d time.Duration) {
	if t.pollTimer != nil {
		t.pollTimer.Stop()
		t.pollTimer = nil
	}
	t.pollPause = d
	if len(t.waiters) > 0 && !s.closed.Load() {
		t.pollTimer = time.AfterFunc(d/2+rand.N(d/2), func() {
			s.background(func(ctx context.Context) { s.poll(ctx, t) })
		})
	}
}

// poll reads the key. It wakes the waiters if the record has changed or is
// free.
func (s *Store) poll(ctx context.Context, t *topic) {
	look := lookup{key: t.key}
	before := s.cached(t.key)
	resp, err := s.txn(ctx, nil, look.ops(s.names), nil)
	var now *view
	if err == nil {
		now, err = s.parseView(look, results(resp.Responses))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[t.key] != t {
		return
	}
	changed := err != nil || before == nil || before.mod != now.mod ||
		now.stored == nil || now.stored.rec.State == tenure.Free
	if err == nil && (before == nil || before.mod != now.mod) {
		now.asOf = resp.Header.Revision
		s.addView(t.key, now)
	}
	if changed {
		t.wake()
	}
	s.schedulePoll(t, min(2*t.pollPause, pollLast))
}
