package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// The queue of a key are the stores in which somebody waits for it, in the order in which they came: one key in etcd for each, on an etcd lease of its store, so that those of the dead vanish. Whoever frees the key
// offers it to the first, in the record itself, and takes it off the queue in the same step. An offer is a hint and no reservation: any acquire is decided as if there were no queue.

const (
	// queueFor is how long a store stays in a queue without a sign of life.
	queueFor = time.Minute
	// mostWaiting bounds how many waiters a transaction that frees keys looks at.
	mostWaiting = 64
)

const (
	// headStart is how long a key that has just been freed is left to the store that it is offered to, by one who happens to look at it just then.
	headStart = 20 * time.Millisecond
	// mostYields is how often one request looks again before it takes a key that is offered to another.
	mostYields = 2
)

// offered reports whether a key was freed just now and is offered to another store than this.
func (v *view) offered(me identity) bool {
	return v.deed != nil && v.deed.rec.State == tenure.Free && v.deed.next > someone && v.deed.next != me && time.Since(v.at) < grace
}

// enqueue puts this store at the end of the queue of a topic, if it is not in it. The caller holds the mutex.
func (s *Store) enqueue(t *topic) {
	if t.queued || len(t.waiters) == 0 || s.closed.Load() {
		return
	}
	t.queued = true
	s.done.Go(func() {
		if s.register(t) != nil {
			s.mu.Lock()
			t.queued = false // at the next change it is tried again; until then a grace covers it
			s.mu.Unlock()
		}
	})
}

func (s *Store) register(t *topic) error {
	ctx, cancel := context.WithTimeout(s.life, 2*requestTimeout)
	defer cancel()
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	a := s.anchorFor(class(s.queueFor))
	if err := s.cover(ctx, a, s.queueFor/2); err != nil {
		return err
	}
	s.mu.Lock()
	id, over := a.id, s.waits[t.key] != t || !t.queued
	s.mu.Unlock()
	if over {
		return nil
	}
	_, err := s.client.Put(ctx, s.names.waiter(t.key, s.id), "", clientv3.WithLease(id))
	switch {
	case leaseGone(err):
		s.lost(a)
	case err == nil:
		s.keepPlaces()
	}
	return err
}

// keepPlaces keeps the etcd lease alive on which this store is in queues, for as long as it is in one.
func (s *Store) keepPlaces() {
	s.mu.Lock()
	begin := !s.placing
	s.placing = true
	s.mu.Unlock()
	if !begin {
		return
	}
	s.fork(func(ctx context.Context) {
		for s.waitsAnywhere() {
			if sleep(ctx, s.queueFor/3) != nil {
				return
			}
			a := s.anchorFor(class(s.queueFor))
			if s.granted(a) && s.cover(ctx, a, s.queueFor) != nil {
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
	again := s.waits[t.key] != nil
	s.mu.Unlock()
	if again {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, requestTimeout)
	defer cancel()
	_, _ = s.client.Delete(ctx, s.names.waiter(t.key, s.id)) // otherwise it vanishes, and a grace covers it until then
}

// handOver adds to a write what it means for those who wait: whoever is granted the key leaves the queue and learns who is next, whoever frees it offers it to the next. A key that one has released and another of this store
// was granted in the same step was never free: nobody is woken.
func (s *Store) handOver(l *lane) []clientv3.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.waits[l.key]
	switch {
	case l.next.rec.State == tenure.Free:
		l.next.next = someone
		if _, m := s.mine(l.old); m != nil && m.heir != 0 {
			l.next.next = m.heir
			if m.heir != s.id {
				l.awaited()
			}
			return []clientv3.Op{clientv3.OpDelete(s.names.waiter(l.key, m.heir))}
		}
	case l.granted && l.next.rec.State == tenure.Held && (t != nil || l.old != nil && (l.old.next > someone || l.old.rec.State == tenure.Held)):
		l.asked = true
		return []clientv3.Op{
			clientv3.OpDelete(s.names.waiter(l.key, s.id)),
			clientv3.OpGet(s.names.queue(l.key), append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...),
		}
	}
	return nil
}

// handedOver takes in what the write has brought to light.
func (s *Store) handedOver(l *lane, responses []*etcdserverpb.ResponseOp) {
	if !l.asked {
		return
	}
	l.asked = false
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.waits[l.key]; t != nil {
		t.queued = false
	}
	first := s.firstOf(l.key, responses[1].GetResponseRange().Kvs)
	if _, m := s.mine(l.next); m != nil {
		m.heir = first
	}
	if first != 0 {
		l.awaited()
	}
}

// firstOf finds the store that has waited longest for a key.
func (s *Store) firstOf(key string, kvs []*mvccpb.KeyValue) identity {
	var first *mvccpb.KeyValue
	var who identity
	for _, kv := range kvs {
		if k, id, ok := s.names.waiting(string(kv.Key)); ok && k == key && (first == nil || kv.CreateRevision < first.CreateRevision) {
			first, who = kv, id
		}
	}
	return who
}

// offer names somebody for the keys that a batch has freed without knowing whom to name.
func (s *Store) offer(b *batch, revision int64, waiting *etcdserverpb.RangeResponse) {
	if len(waiting.Kvs) == 0 {
		return
	}
	for _, l := range b.lanes {
		if l.next == nil || l.next.next != someone || l.step != finished {
			continue
		}
		first := s.firstOf(l.key, waiting.Kvs)
		if first == 0 && !waiting.More {
			continue
		}
		if first != s.id {
			l.awaited()
		}
		d := *l.next
		if first != 0 {
			// Until it is written, at least this store knows: it does not want the key back before others had it.
			known := d
			known.next = first
			s.mu.Lock()
			s.remember(l.key, &view{mod: revision, asOf: revision, deed: &known})
			s.mu.Unlock()
		}
		s.fork(func(ctx context.Context) { s.name(ctx, l.key, revision, &d, first) })
	}
}

// name offers a key that has been freed to the first of its queue, if nothing has become of it yet.
func (s *Store) name(ctx context.Context, key string, revision int64, d *deed, first identity) {
	if first == 0 {
		resp, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(s.names.queue(key), append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...)}, nil)
		if err != nil {
			return
		}
		if first = s.firstOf(key, resp.Responses[0].GetResponseRange().Kvs); first == 0 {
			return
		}
	}
	d.next = first
	same := clientv3.Compare(clientv3.ModRevision(s.names.record(key)), "=", revision)
	resp, err := s.txn(ctx, []clientv3.Cmp{same}, []clientv3.Op{clientv3.OpDelete(s.names.waiter(key, first)), clientv3.OpPut(s.names.record(key), d.encode())}, nil)
	if err == nil && resp.Succeeded {
		s.mu.Lock()
		s.remember(key, &view{mod: resp.Header.Revision, asOf: resp.Header.Revision, deed: d})
		s.mu.Unlock()
	}
}
