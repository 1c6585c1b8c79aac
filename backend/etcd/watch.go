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
	// grace is how long the second in a queue leaves a freed key to the first. One that died or hangs delays it by no more.
	grace = 100 * time.Millisecond
	// lookFirst and lookLast are how often a key is looked at that nothing is heard of: changes that are of no use to those who wait are told to nobody.
	pollFirst, pollLast = time.Second, 8 * time.Second
	// linger is how long a watch stays open after the last who waited: whoever waits again finds it open.
	linger = 15 * time.Second
	// mostTopics bounds how many watches stay open for that.
	maxTopics = 1024
)

// topic is a key that somebody in this store waits for, or did lately. Its watch is of this store's own place in the key's queue, and is opened at the present revision: etcd serves one that begins in the past only ten times a
// second.
type topic struct {
	key        string
	waiters    map[chan struct{}]struct{}
	ready      chan struct{} // closed when etcd has begun to tell of changes: from then on nothing is missed
	begun      bool
	end        context.CancelFunc
	restart    context.CancelFunc // begins the watch anew
	queued     bool               // this store is in the key's queue
	joinedAt   int64              // the revision at which it came to it last,
	leftAt     int64              // and at which it left it
	lock       chan struct{}      // held while it enters the queue or leaves it
	wakeTimer  *time.Timer        // a wake-up to come, unless something newer is heard before
	pollTimer  *time.Timer        // the next look at the key
	pollPause  time.Duration      // before that
	closeTimer *time.Timer        // the end, when nobody has waited for long enough
	missedWake bool               // a wake-up came when nobody was there
	bid        *ownBid            // the bid in its place
	returnedAt time.Time          // when that was given back last: none is left there for a while
}

// Watch wakes when the key is freed and it is this store's turn to ask, a little later when the one whose turn it was does not come, and some time after any other change. All watches of a client share one stream; it is made again
// by itself, and then everybody is woken, because nobody knows what was missed.
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
	t := s.topics[key]
	if t == nil {
		t = &topic{key: key, waiters: map[chan struct{}]struct{}{}, ready: make(chan struct{}), lock: make(chan struct{}, 1)}
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
		return nil, store.Unknown(over(ctx))
	}
	context.AfterFunc(ctx, func() { s.unwatch(t, c) })
	return c, nil
}

// Sees says that a watch also wakes if the key has changed between its refusal and the beginning of the watch: see [store.Lookout].
func (s *Store) Sees() bool { return true }

// unwatch ends one watch, and the topic some time after the last.
func (s *Store) unwatch(t *topic, c chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := t.waiters[c]; !waits {
		return
	}
	delete(t.waiters, c)
	close(c) // under the mutex: nobody is waking it
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
			s.dropBid(t) // it could not leave the queue, and is too old to be granted anything
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

// quiet stops what would wake somebody later. The caller holds the mutex.
func (t *topic) stopTimers() {
	for _, timer := range []*time.Timer{t.wakeTimer, t.pollTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
	t.wakeTimer, t.pollTimer = nil, nil
}

// closeTopics ends all watches.
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
			close(t.ready) // and its channel is closed
		}
	}
}

// listen hears of the changes of this store's place in a queue until the topic ends.
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
		// It was cancelled: no leader, or a compaction overtook it. What it missed is made up for by a wake-up when it begins again.
		select {
		case <-ctx.Done():
		case <-time.After(grace + rand.N(grace)):
		}
	}
}

// begin notes that changes are told from now on.
func (s *Store) watchBegan(t *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.topics[t.key] != t:
		return
	case t.begun:
		t.queued = false // or not: something may have been missed
		t.wake()
		if t.bid != nil && t.missedWake && !s.closed.Load() { // and nobody else finds out whether it was granted
			s.done.Go(func() { s.poll(s.life, t) })
		}
	default:
		t.begun = true
		close(t.ready)
	}
	s.enqueue(t)
}

// outOfQueue takes note that this store's place is gone, and makes those who wait ask. The caller holds the mutex.
func (s *Store) lostEntry(t *topic) {
	t.queued = false
	s.dropBid(t)
	t.wake()
}

// wake tells all who wait. The caller holds the mutex.
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

// later wakes after a while, unless something newer is heard. The caller holds the mutex.
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

// heard takes in a change of this store's place.
func (s *Store) entryChanged(t *topic, e *clientv3.Event) {
	var d *storedRecord
	if told := e.Type == clientv3.EventTypePut && len(e.Kv.Value) > 0 && e.Kv.Value[0] == recordFormat; told { // it is offered, or was granted
		var err error
		if d, err = decodeRecord(t.key, e.Kv.Value); err != nil {
			d = nil // whoever asks is told
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
		case e.Kv.ModRevision <= max(t.leftAt, t.joinedAt): // it left with the key, or has come again
		case !t.queued: // whoever waits was woken when its turn came, or comes to the queue now and looks at the key then
			t.leftAt = e.Kv.ModRevision
		default:
			t.leftAt = e.Kv.ModRevision
			s.lostEntry(t)
		}
	case len(e.Kv.Value) == 0 || isBid(e.Kv.Value): // it has come
	case e.Kv.Value[0] == youAreNext[0]:
		if t.bid != nil && t.joinedAt < e.Kv.ModRevision {
			t.bid.mod = e.Kv.ModRevision
		}
		s.wakeLater(t, grace)
	default:
		if d != nil {
			s.addView(t.key, &view{mod: e.Kv.ModRevision, asOf: e.Kv.ModRevision, stored: d})
		}
		if t.joinedAt < e.Kv.ModRevision { // else it has come again
			t.queued = false
			s.dropBid(t) // unless it was granted
		}
		t.wake()
		if t.missedWake { // whoever has just been refused may be about to wait
			s.returnSoon(s.unclaimedAward(t.key))
			if d != nil && d.rec.State == tenure.Free {
				time.AfterFunc(headStart, func() { s.passOn(t, e.Kv.ModRevision, d) })
			}
		}
	}
}

// passOn offers a key to the next in the queue when nobody here waits for it any more.
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

// lookOut looks at the key after a while. The caller holds the mutex.
func (s *Store) schedulePoll(t *topic, d time.Duration) {
	if t.pollTimer != nil {
		t.pollTimer.Stop()
		t.pollTimer = nil
	}
	t.pollPause = d
	if len(t.waiters) > 0 && !s.closed.Load() {
		t.pollTimer = time.AfterFunc(d/2+rand.N(d/2), func() { s.background(func(ctx context.Context) { s.poll(ctx, t) }) })
	}
}

// look wakes those who wait if the key is not as it was, or is free and nobody has said so.
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
	changed := err != nil || before == nil || before.mod != now.mod || now.stored == nil || now.stored.rec.State == tenure.Free
	if err == nil && (before == nil || before.mod != now.mod) {
		now.asOf = resp.Header.Revision
		s.addView(t.key, now)
	}
	if changed {
		t.wake()
	}
	s.schedulePoll(t, min(2*t.pollPause, pollLast))
}
