package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// orphaned is how long a store stays in a queue that it has joined without anybody waiting.
const idleInQueue = 250 * time.Millisecond

// enqueue puts this store at the end of the queue of a topic, if it is not in it. The caller holds the mutex.
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
			t.queued = false // whoever asks, and is refused, makes it try again
			s.wakeLater(t, grace)
		case !calm:
			t.wake()
		}
	})
}

// requeue puts this store in the queue again when a key was refused that somebody waits for.
func (s *Store) requeue(refused *tenure.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[refused.Key]; t != nil && t.begun {
		s.dropOutdatedBid(t, refused)
		s.enqueue(t)
	}
}

// joining puts this store in the queue of a key in the same step in which it is looked at, if it has waited for it lately: it will again, as a rule. It leaves its bid there.
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

// joined takes note of that. If nobody waits after all, it leaves again.
func (s *Store) noteJoined(g *group, revision int64) {
	t := g.joins
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.bid != nil && g.bid.awarded { // that was heard of before this
		return
	}
	if revision < max(t.leftAt, t.joinedAt) { // it has left again, or another of this store has taken the place over
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

// unjoin gives up a bid that was not left in a queue, or of which nobody knows whether it was.
func (s *Store) undoJoin(g *group, known bool) {
	k, t := g.bid, g.joins
	if k == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.withdraw(k)
	} else if !k.awarded {
		s.markUncertain(k)
		s.markUncertain(t.bid) // it may be there as well
		t.bid = k
	}
}

// register writes this store's place. It is calm if the key is still held as it was when it was last seen: nobody has missed anything.
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
	resp, err := repeated(ctx, requestTimeout, func(ctx context.Context) (*clientv3.TxnResponse, error) { // twice in the queue is once
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
			return false, nil // whoever asks is told
		}
		now.asOf = resp.Header.Revision
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepQueueLease()
	if now != nil {
		s.addView(t.key, now)
	}
	if t.joinedAt < resp.Header.Revision { // and no bid is in it, or what was is granted
		t.joinedAt = resp.Header.Revision
		s.dropBid(t)
	}
	return now == nil && v.stored != nil && v.stored.rec.State == tenure.Held, nil
}

// keepPlaces keeps the etcd lease alive on which this store is in queues, for as long as it is in one. The caller holds the mutex.
func (s *Store) keepQueueLease() {
	if s.keepingQueueLease || s.closed.Load() {
		return
	}
	s.keepingQueueLease = true
	s.done.Go(func() {
		for s.inAnyQueue() {
			if sleep(s.life, s.queueTTL/3) != nil {
				return
			}
			a := s.etcdLeaseFor(leaseSeconds(s.queueTTL))
			if s.isGranted(a) && s.extendLease(s.life, a, s.queueTTL) != nil {
				continue // the next try comes in time, or the places are lost
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

// waitsAnywhere reports whether this store is in a queue; if not, nobody keeps its places any more.
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

// dequeue takes this store off a queue, unless somebody waits again by then.
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
	gone, err := s.client.Delete(ctx, s.names.waiter(t.key, s.id), clientv3.WithPrevKV()) // otherwise it vanishes, and a grace covers it until then
	if err == nil {
		s.noteMissedAward(t.key, gone.PrevKvs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && t.joinedAt < gone.Header.Revision { // else it has come again meanwhile
		t.queued, t.leftAt = false, gone.Header.Revision
		s.dropBid(t)
	}
	s.enqueue(t) // somebody has come meanwhile
}

// missed takes in that this store was granted a key just before it left the queue.
func (s *Store) noteMissedAward(key string, places []*mvccpb.KeyValue) {
	for _, kv := range places {
		if d, err := decodeRecord(key, kv.Value); err == nil && d.rec.State == tenure.Held {
			s.mu.Lock()
			s.addView(key, &view{mod: kv.ModRevision, asOf: kv.ModRevision, stored: d})
			s.mu.Unlock()
		}
	}
}
