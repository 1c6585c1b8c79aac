package etcd

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// A key's queue has an entry for each store in which callers wait, in the order
// of their creation. A store watches only its own entry. A release writes the
// freed record into the first entry, in the same transaction: an offer. This
// wakes only that store. The second is told that it is next, and asks a little
// later. A grant deletes the entry of the new holder, and of the store that was
// offered the key but did not come.
//
// An offer is a hint, not a reservation. The law decides on every acquire as if
// there were no queue.

const (
	// queueTTL is how long the queue entry of a dead store stays.
	queueTTL = time.Minute
	// maxQueueRead bounds how many entries a transaction reads that frees keys.
	maxQueueRead = 64
	// shortTerm is a term so short that few stores can have come to wait. Then
	// waking all of them is no stampede.
	shortTerm = time.Second
)

const (
	// headStart is how long a store leaves a freed key to the store that is
	// offered it.
	headStart = 20 * time.Millisecond
	// maxYields is how often a request reads a key again before it takes one
	// that is offered to another store.
	maxYields = 2
)

// youAreNext begins the entry of the second store in a queue; its bid follows,
// if it has left one. The first store finds the offered record in its entry. A
// store that has just joined has its bid there, or nothing.
const youAreNext = "2"

// successor is a store in a queue, and its bid if it has left one. The zero
// successor is nobody.
type successor struct {
	id  identity
	bid *bid
}

// successors are the first two stores in a queue.
type successors [2]successor

// offeredElsewhere reports whether a key was freed a moment ago and is offered
// to another store.
func (v *view) offeredElsewhere(me identity) bool {
	return v.stored != nil && v.stored.rec.State == tenure.Free &&
		v.stored.offeredTo > unnamed && v.stored.offeredTo != me && time.Since(v.cachedAt) < grace
}

// offerTo writes a freed record into the entry of the first successor, and
// tells the second that it is next. If the first has left, the second is
// offered the key. If both have left, all entries are deleted.
func (s *Store) offerTo(key, record string, h successors) clientv3.Op {
	all := s.clearQueue(key)
	one, two := h[0].id, h[1].id
	if two == 0 {
		return s.ifQueued(key, one, []clientv3.Op{s.putEntry(key, one, record)}, all)
	}
	next := s.ifQueued(key, two, []clientv3.Op{s.putEntry(key, two, youAreNext)})
	if b := h[1].bid; b != nil {
		// The bid stays in the entry. A newer bid is left alone.
		next = clientv3.OpTxn([]clientv3.Cmp{s.bidUnchanged(key, b)},
			[]clientv3.Op{s.putEntry(key, two, youAreNext+b.encode())}, nil)
	}
	return s.ifQueued(key, one, []clientv3.Op{s.putEntry(key, one, record), next},
		s.ifQueued(key, two, []clientv3.Op{s.putEntry(key, two, record)}, all))
}

func (s *Store) putEntry(key string, to identity, what string) clientv3.Op {
	return clientv3.OpPut(s.names.waiter(key, to), what, clientv3.WithIgnoreLease())
}

// ifQueued does then if a store is in a queue, and otherwise if it is not.
func (s *Store) ifQueued(key string, who identity, then []clientv3.Op, otherwise ...clientv3.Op) clientv3.Op {
	queued := clientv3.Compare(clientv3.CreateRevision(s.names.waiter(key, who)), ">", 0)
	return clientv3.OpTxn([]clientv3.Cmp{queued}, then, otherwise)
}

// clearQueue deletes all entries of a queue, which wakes all waiting stores.
func (s *Store) clearQueue(key string) clientv3.Op {
	return clientv3.OpDelete(s.names.queue(key), clientv3.WithPrefix())
}

// queueOps returns the queue operations that go before and after the write of a
// record. A grant leaves the queue and reads its head. A release offers or
// awards the key to the next. An operator's act wakes all. A key that is
// released and granted to this store again in one transaction was never free:
// nobody is woken.
func (s *Store) queueOps(g *group) (before []clientv3.Op, after []clientv3.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[g.key]
	state := g.next.rec.State
	if state == tenure.Free {
		g.next.offeredTo = unnamed
	}
	_, m := s.ownMember(g.old)
	if m != nil && m.inQueue && (state == tenure.Free || g.awardTo != nil) {
		g.leavesQueue = true
		before = append(before, clientv3.OpDelete(s.names.waiter(g.key, s.id)))
	}
	switch {
	case g.awardTo != nil:
		if m != nil && m.next[1].id != 0 { // the first has it now; others wait, too
			g.markAwaited()
		}
		g.wakes = wakeFirst
		return before, []clientv3.Op{s.putEntry(g.key, g.awardTo.page.store, g.valueForSuccessor())}
	case g.byHand() || state == tenure.Reserved:
		g.wakes = wakeAll
		return before, []clientv3.Op{s.clearQueue(g.key)}
	case state == tenure.Free && m != nil && m.next[0].id != 0:
		g.next.offeredTo = m.next[0].id
		if m.next[0].id != s.id {
			g.markAwaited()
		}
		g.wakes = wakeFirst
		return before, []clientv3.Op{s.offerTo(g.key, g.valueForSuccessor(), m.next)}
	case state == tenure.Free && t != nil && g.now.Sub(g.next.rec.Acquired) < shortTerm:
		// Others may have come since the grant.
		g.wakes = wakeAll
		return before, []clientv3.Op{s.clearQueue(g.key)}
	case g.granted && state == tenure.Held &&
		(t != nil || g.old != nil && (g.old.offeredTo > unnamed || g.old.rec.State == tenure.Held)):
		g.readsQueue = true
		before = []clientv3.Op{clientv3.OpDelete(s.names.waiter(g.key, s.id))}
		if who := g.old.absentee(); who != 0 && who != s.id {
			before = append(before, clientv3.OpDelete(s.names.waiter(g.key, who)))
		}
		return append(before, s.queueHead(g.key)), nil
	}
	return before, nil
}

// absentee returns the store that was offered or granted the key and did not
// come, or did not come back. Its queue entry may still exist.
func (d *storedRecord) absentee() identity {
	switch {
	case d == nil:
		return 0
	case d.rec.State == tenure.Held:
		return d.page.store
	case d.offeredTo > unnamed:
		return d.offeredTo
	}
	return 0
}

// queueHead reads the first entries of a queue. It reads three, because one may
// be that of this store, which has the key.
func (s *Store) queueHead(key string) clientv3.Op {
	return clientv3.OpGet(s.names.queue(key), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(3))
}

// queueAnswered handles the answers to a group's queue operations.
func (s *Store) queueAnswered(g *group, revision int64, responses []*etcdserverpb.ResponseOp) {
	if g.leavesQueue {
		s.mu.Lock()
		if t := s.topics[g.key]; t != nil {
			t.leftAt = revision
			if t.queued && t.joinedAt < revision { // another caller here had begun to wait
				s.lostEntry(t)
			}
		}
		s.mu.Unlock()
	}
	switch {
	case g.wakes == wakeAll:
		if gone := responses[len(responses)-1].GetResponseDeleteRange(); gone != nil && gone.Deleted > 0 {
			g.markAwaited()
		}
	case g.readsQueue:
		g.readsQueue = false
		s.mu.Lock()
		defer s.mu.Unlock()
		t := s.topics[g.key]
		if t != nil {
			t.queued, t.leftAt, t.missedWake = false, revision, false
			s.dropBid(t)
		}
		next := s.firstWaiting(g.key, responses[len(responses)-2].GetResponseRange().Kvs, 0)
		if _, m := s.ownMember(g.next); m != nil {
			m.next = next
			if t != nil && next[0].id == 0 && !s.closed.Load() {
				s.done.Go(func() { s.pollQueue(g.key, m) })
			}
		}
		if next[0].id != 0 {
			g.markAwaited()
		}
	}
}

// firstWaiting finds the two stores that have waited longest for a key. It
// leaves out except: that store has been granted the key, though its entry may
// still exist.
func (s *Store) firstWaiting(key string, kvs []*mvccpb.KeyValue, except identity) (h successors) {
	queue := slices.Clone(kvs)
	slices.SortFunc(queue, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	n := 0
	for _, kv := range queue {
		k, id, ok := s.names.waiting(string(kv.Key))
		if !ok || k != key || id == except || n == len(h) {
			continue
		}
		h[n] = successor{id, decodeBid(key, id, kv)}
		n++
	}
	return h
}

// offerFreed offers the keys that a batch has freed without knowing their
// queues.
func (s *Store) offerFreed(b *batch, revision int64, waiting *etcdserverpb.RangeResponse) {
	if len(waiting.Kvs) == 0 {
		return
	}
	for _, g := range b.groups {
		if g.next == nil || g.next.offeredTo != unnamed || g.wakes != wakeNobody || g.step != finished {
			continue
		}
		next := s.firstWaiting(g.key, waiting.Kvs, 0)
		if next[0].id == 0 && !waiting.More {
			continue
		}
		if next[0].id != s.id {
			g.markAwaited()
		}
		if next[0].id != 0 {
			// Cache the offer before it is written, so that this store does not
			// take the key back before others had it.
			known := *g.next
			known.offeredTo = next[0].id
			s.mu.Lock()
			s.addView(g.key, &view{mod: revision, asOf: revision, stored: &known})
			s.mu.Unlock()
		}
		s.offerLater(g.key, revision, g.next, next)
	}
}

// offerLater offers a freed key to the first in its queue, in the background,
// if the record is still as it was freed. Close waits for that, so that a
// process can release a key and end.
func (s *Store) offerLater(key string, revision int64, freed *storedRecord, next successors) {
	d := *freed
	s.background(func(context.Context) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*requestTimeout)
		defer cancel()
		if next[0].id == 0 {
			resp, err := s.txn(ctx, nil, []clientv3.Op{s.queueHead(key)}, nil)
			if err != nil {
				return
			}
			if next = s.firstWaiting(key, resp.Responses[0].GetResponseRange().Kvs, 0); next[0].id == 0 {
				return
			}
		}
		d.offeredTo = next[0].id
		same := clientv3.Compare(clientv3.ModRevision(s.names.record(key)), "=", revision)
		resp, err := s.txn(ctx, []clientv3.Cmp{same}, []clientv3.Op{
			clientv3.OpPut(s.names.record(key), d.encode()), s.offerTo(key, d.encodeWhole(), next),
		}, nil)
		if err == nil && resp.Succeeded {
			s.mu.Lock()
			s.addView(key, &view{mod: resp.Header.Revision, asOf: resp.Header.Revision, stored: &d})
			s.mu.Unlock()
		}
	})
}
