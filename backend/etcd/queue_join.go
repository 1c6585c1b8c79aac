package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/tenure"
)

// idleInQueue is how long a store stays in a queue that it has joined, if no
// caller waits.
const idleInQueue = 250 * time.Millisecond

// enqueue puts this store at the end of a topic's queue, in the background,
// unless it is in it or no caller waits. The caller holds the mutex.
func (s *Store) enqueue(t *topic) {
	if t.queued || len(t.waiters) == 0 || s.closed.Load() {
		return
	}
	t.queued = true
	s.done.Go(func() {
		calm, err := s.putOwnEntry(t)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil:
			t.queued = false // the next refusal makes it try again
			s.wakeLater(t, grace)
		case !calm:
			t.wake()
		}
	})
}

// requeue puts this store into the queue again after a refusal, if a caller
// waits for the key.
func (s *Store) requeue(refused *tenure.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[refused.Key]; t != nil && t.begun {
		s.dropOutdatedBid(t, refused)
		s.enqueue(t)
	}
}

// joinOps returns the operations that put this store into the queue in the
// transaction that reads the key. They leave a bid there, too. joinOps returns
// nil unless callers have waited for the key lately and so will probably wait
// again.
func (s *Store) joinOps(g *group) []clientv3.Op {
	if g.requests[0].Verb != tenure.Acquire {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, a := s.topics[g.key], s.etcdLeases[leaseSeconds(s.queueTTL)]
	if t == nil || !t.begun || t.queued || a == nil || a.gone || a.id == 0 || a.remaining() < s.queueTTL/2 {
		return nil
	}
	g.joins = t
	var value string
	if time.Since(t.returnedAt) > s.maxBidAge {
		g.bid, value = s.newBid(&g.requests[0])
	}
	return []clientv3.Op{clientv3.OpPut(s.names.waiter(g.key, s.id), value, clientv3.WithLease(a.id))}
}

// noteJoined notes that this store is in the queue. If no caller waits after a
// while, the store leaves again.
func (s *Store) noteJoined(g *group, revision int64) {
	t := g.joins
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.bid != nil && g.bid.awarded { // the watch told of the award first
		return
	}
	// This store has left again, or a later request has replaced the entry.
	if revision < max(t.leftAt, t.joinedAt) {
		s.withdraw(g.bid)
		return
	}
	s.withdraw(t.bid)
	t.queued, t.joinedAt, t.bid = true, revision, g.bid
	s.keepQueueLease()
	if g.bid != nil {
		g.bid.mod = revision
	}
	time.AfterFunc(s.idleInQueue, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.queued && len(t.waiters) == 0 && !s.closed.Load() {
			s.done.Go(func() { s.dequeue(t) })
		}
	})
}

// undoJoin gives up a bid that was not put into the queue (known), or may not
// have been.
func (s *Store) undoJoin(g *group, known bool) {
	own, t := g.bid, g.joins
	if own == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.withdraw(own)
	} else if !own.awarded {
		s.markUncertain(own)
		s.markUncertain(t.bid) // it may still be there
		t.bid = own
	}
}

// putOwnEntry writes this store's queue entry, without a bid. calm means that
// the key is still held as it was last seen, so waiters have missed nothing.
func (s *Store) putOwnEntry(t *topic) (calm bool, err error) {
	ctx, cancel := context.WithTimeout(s.life, 2*requestTimeout)
	defer cancel()
	t.lock <- struct{}{}
	defer func() { <-t.lock }()
	a := s.etcdLeaseFor(leaseSeconds(s.queueTTL))
	if err := s.extendLease(ctx, a, s.queueTTL/2); err != nil {
		return false, err
	}
	v := s.cached(t.key)
	if v == nil {
		v = &view{}
	}
	s.mu.Lock()
	id, over := a.id, s.topics[t.key] != t || !t.queued
	s.mu.Unlock()
	if over {
		return true, nil
	}
	same := clientv3.Compare(clientv3.ModRevision(s.names.record(t.key)), "=", v.mod)
	put := clientv3.OpPut(s.names.waiter(t.key, s.id), "", clientv3.WithLease(id))
	look := lookup{key: t.key}
	// Repeating is safe: a store has only one entry.
	resp, err := repeated(ctx, requestTimeout, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).If(same).Then(put).Else(append(look.ops(s.names), put)...).Commit()
	})
	if leaseGone(err) {
		s.leaseLost(a)
	}
	if err != nil {
		return false, err
	}
	var now *view
	if !resp.Succeeded {
		if now, err = s.parseView(look, results(resp.Responses[:1])); err != nil {
			return false, nil // damaged: the next request reports it
		}
		now.asOf = resp.Header.Revision
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepQueueLease()
	if now != nil {
		s.addView(t.key, now)
	}
	if t.joinedAt < resp.Header.Revision { // the entry has no bid now
		t.joinedAt = resp.Header.Revision
		s.dropBid(t)
	}
	return now == nil && v.stored != nil && v.stored.rec.State == tenure.Held, nil
}

// keepQueueLease starts a goroutine that keeps the etcd lease of the queue
// entries alive while there are any. The caller holds the mutex.
func (s *Store) keepQueueLease() {
	if s.keepingQueueLease || s.closed.Load() {
		return
	}
	s.keepingQueueLease = true
	s.done.Go(func() {
		for s.inAnyQueue() {
			if clock.Sleep(s.life, s.queueTTL/3) != nil {
				return
			}
			a := s.etcdLeaseFor(leaseSeconds(s.queueTTL))
			if s.isGranted(a) && s.extendLease(s.life, a, s.queueTTL) != nil {
				continue // the next try comes in time, or the entries expire
			}
			s.mu.Lock()
			if a.gone || a.id == 0 {
				for _, t := range s.topics {
					t.queued = false
					s.enqueue(t)
				}
			}
			s.mu.Unlock()
		}
	})
}

// inAnyQueue reports whether this store is in a queue. If not, it notes that
// keepQueueLease ends.
func (s *Store) inAnyQueue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.topics {
		if t.queued {
			return true
		}
	}
	s.keepingQueueLease = false
	return false
}

// dequeue takes this store out of a queue, unless a caller waits again by then.
func (s *Store) dequeue(t *topic) {
	t.lock <- struct{}{}
	defer func() { <-t.lock }()
	s.mu.Lock()
	again := len(t.waiters) > 0 || !t.queued
	s.mu.Unlock()
	if again {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, requestTimeout)
	defer cancel()
	// If this fails, the entry expires. Until then the second waits for grace.
	gone, err := s.client.Delete(ctx, s.names.waiter(t.key, s.id), clientv3.WithPrevKV())
	if err == nil {
		s.noteMissedAward(t.key, gone.PrevKvs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && t.joinedAt < gone.Header.Revision { // otherwise it has joined again
		t.queued, t.leftAt = false, gone.Header.Revision
		s.dropBid(t)
	}
	s.enqueue(t) // if a caller has come meanwhile
}

// noteMissedAward looks for an award in the entry that this store has deleted.
func (s *Store) noteMissedAward(key string, entries []*mvccpb.KeyValue) {
	for _, kv := range entries {
		if d, err := decodeRecord(key, kv.Value); err == nil && d.rec.State == tenure.Held {
			s.mu.Lock()
			s.addView(key, &view{mod: kv.ModRevision, asOf: kv.ModRevision, stored: d})
			s.mu.Unlock()
		}
	}
}
