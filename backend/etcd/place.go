package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// orphaned is how long a store stays in a queue that it has joined without anybody waiting.
const orphaned = 250 * time.Millisecond

// enqueue puts this store at the end of the queue of a topic, if it is not in it. The caller holds the mutex.
func (s *Store) enqueue(t *topic) {
	if t.queued || len(t.waiters) == 0 || s.closed.Load() {
		return
	}
	t.queued = true
	s.done.Go(func() {
		calm, err := s.register(t)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil:
			t.queued = false // whoever asks, and is refused, makes it try again
			s.later(t, grace)
		case !calm:
			t.wake()
		}
	})
}

// requeue puts this store in the queue again when a key was refused that somebody waits for.
func (s *Store) requeue(refused *tenure.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.waits[refused.Key]; t != nil && t.begun {
		s.revise(t, refused)
		s.enqueue(t)
	}
}

// joining puts this store in the queue of a key in the same step in which it is looked at, if it has waited for it lately: it will again, as a rule. It leaves its bid there.
func (s *Store) joining(g *group) []clientv3.Op {
	if g.requests[0].Verb != tenure.Acquire {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, a := s.waits[g.key], s.etcdLeases[leaseSeconds(s.queueFor)]
	if t == nil || !t.begun || t.queued || a == nil || a.gone || a.id == 0 || a.remaining() < s.queueFor/2 {
		return nil
	}
	g.joins = t
	var value string
	if time.Since(t.vain) > s.young {
		g.stake, value = s.stakeFor(&g.requests[0])
	}
	return []clientv3.Op{clientv3.OpPut(s.names.waiter(g.key, s.id), value, clientv3.WithLease(a.id))}
}

// joined takes note of that. If nobody waits after all, it leaves again.
func (s *Store) joined(g *group, revision int64) {
	t := g.joins
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.stake != nil && g.stake.awarded { // that was heard of before this
		return
	}
	if revision < max(t.left, t.came) { // it has left again, or another of this store has taken the place over
		s.withdraw(g.stake)
		return
	}
	s.withdraw(t.stake)
	t.queued, t.came, t.stake = true, revision, g.stake
	s.keepPlaces()
	if g.stake != nil {
		g.stake.mod = revision
	}
	time.AfterFunc(s.orphaned, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.queued && len(t.waiters) == 0 && !s.closed.Load() {
			s.done.Go(func() { s.dequeue(t) })
		}
	})
}

// unjoin gives up a bid that was not left in a queue, or of which nobody knows whether it was.
func (s *Store) unjoin(g *group, known bool) {
	k, t := g.stake, g.joins
	if k == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.withdraw(k)
	} else if !k.awarded {
		s.doubt(k)
		s.doubt(t.stake) // it may be there as well
		t.stake = k
	}
}

// register writes this store's place. It is calm if the key is still held as it was when it was last seen: nobody has missed anything.
func (s *Store) register(t *topic) (calm bool, err error) {
	ctx, cancel := context.WithTimeout(s.life, 2*requestTimeout)
	defer cancel()
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	a := s.etcdLeaseFor(leaseSeconds(s.queueFor))
	if err := s.extendLease(ctx, a, s.queueFor/2); err != nil {
		return false, err
	}
	v := s.cached(t.key)
	if v == nil {
		v = &view{}
	}
	s.mu.Lock()
	id, over := a.id, s.waits[t.key] != t || !t.queued
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
	s.keepPlaces()
	if now != nil {
		s.addView(t.key, now)
	}
	if t.came < resp.Header.Revision { // and no bid is in it, or what was is granted
		t.came = resp.Header.Revision
		s.takeBack(t)
	}
	return now == nil && v.stored != nil && v.stored.rec.State == tenure.Held, nil
}

// keepPlaces keeps the etcd lease alive on which this store is in queues, for as long as it is in one. The caller holds the mutex.
func (s *Store) keepPlaces() {
	if s.placing || s.closed.Load() {
		return
	}
	s.placing = true
	s.done.Go(func() {
		for s.waitsAnywhere() {
			if sleep(s.life, s.queueFor/3) != nil {
				return
			}
			a := s.etcdLeaseFor(leaseSeconds(s.queueFor))
			if s.isGranted(a) && s.extendLease(s.life, a, s.queueFor) != nil {
				continue // the next try comes in time, or the places are lost
			}
			s.mu.Lock()
			if a.gone || a.id == 0 {
				for _, t := range s.waits {
					t.queued = false
					s.enqueue(t)
				}
			}
			s.mu.Unlock()
		}
	})
}

// waitsAnywhere reports whether this store is in a queue; if not, nobody keeps its places any more.
func (s *Store) waitsAnywhere() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.waits {
		if t.queued {
			return true
		}
	}
	s.placing = false
	return false
}

// dequeue takes this store off a queue, unless somebody waits again by then.
func (s *Store) dequeue(t *topic) {
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
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
		s.missed(t.key, gone.PrevKvs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && t.came < gone.Header.Revision { // else it has come again meanwhile
		t.queued, t.left = false, gone.Header.Revision
		s.takeBack(t)
	}
	s.enqueue(t) // somebody has come meanwhile
}

// missed takes in that this store was granted a key just before it left the queue.
func (s *Store) missed(key string, places []*mvccpb.KeyValue) {
	for _, kv := range places {
		if d, err := decodeRecord(key, kv.Value); err == nil && d.rec.State == tenure.Held {
			s.mu.Lock()
			s.addView(key, &view{mod: kv.ModRevision, asOf: kv.ModRevision, stored: d})
			s.mu.Unlock()
		}
	}
}
