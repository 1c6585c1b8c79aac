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

// The queue of a key are the stores in which somebody waits for it, in the order in which they came: one key in etcd for each, its place, on an etcd lease of its store, so that those of the dead vanish. A store watches
// its own place and nothing else. Whoever frees the key writes the freed record into the place of the first, in the same step, and so wakes that one alone; the second is told that it is next, and looks a little later.
// Whoever is granted the key takes off the queue whom it was offered to. An offer is a hint and no reservation: any acquire is decided as if there were no queue.

const (
	// queueFor is how long a store stays in a queue without a sign of life.
	queueTTL = time.Minute
	// mostWaiting bounds how many waiters a transaction that frees keys looks at.
	maxQueueRead = 64
	// briefly is how long a term lasts during which not so many come to wait that waking all of them would be a stampede.
	shortTerm = time.Second
)

const (
	// headStart is how long a key that has just been freed is left to the store that it is offered to, by one who happens to look at it just then.
	headStart = 20 * time.Millisecond
	// mostYields is how often one request looks again before it takes a key that is offered to another.
	maxYields = 2
)

// beNext is what the place of a store says that comes after the one to whom the key was offered, before its bid if it has left one. One to whom it is offered finds the record there, and one that has just come its bid, or nothing.
const youAreNext = "2"

// heir is a store in a queue, and what it has bid, if anything. The zero heir is nobody.
type successor struct {
	id  identity
	bid *bid
}

// heirs are the first two in a queue.
type successors [2]successor

// offered reports whether a key was freed just now and is offered to another store than this.
func (v *view) offeredElsewhere(me identity) bool {
	return v.stored != nil && v.stored.rec.State == tenure.Free && v.stored.offeredTo > unnamed && v.stored.offeredTo != me && time.Since(v.cachedAt) < grace
}

// offerTo writes a freed record into the place of the first in a queue and tells the second. If they have left meanwhile, all are woken.
func (s *Store) offerTo(key, record string, h successors) clientv3.Op {
	all := s.clearQueue(key)
	one, two := h[0].id, h[1].id
	if two == 0 {
		return s.ifQueued(key, one, []clientv3.Op{s.putEntry(key, one, record)}, all)
	}
	next := s.ifQueued(key, two, []clientv3.Op{s.putEntry(key, two, youAreNext)})
	if b := h[1].bid; b != nil { // which stays where it is; if it is another by now, that one is heard of when it is next
		next = clientv3.OpTxn([]clientv3.Cmp{s.bidUnchanged(key, b)}, []clientv3.Op{s.putEntry(key, two, youAreNext+b.encode())}, nil)
	}
	return s.ifQueued(key, one, []clientv3.Op{s.putEntry(key, one, record), next}, s.ifQueued(key, two, []clientv3.Op{s.putEntry(key, two, record)}, all))
}

func (s *Store) putEntry(key string, to identity, what string) clientv3.Op {
	return clientv3.OpPut(s.names.waiter(key, to), what, clientv3.WithIgnoreLease())
}

// ifThere does something if a store is in a queue, and something else if not.
func (s *Store) ifQueued(key string, who identity, then []clientv3.Op, otherwise ...clientv3.Op) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.names.waiter(key, who)), ">", 0)}, then, otherwise)
}

// wakeAll takes all off a queue: whoever waits finds its place gone.
func (s *Store) clearQueue(key string) clientv3.Op {
	return clientv3.OpDelete(s.names.queue(key), clientv3.WithPrefix())
}

// handOver adds to a write what it means for those who wait: whoever is granted the key leaves the queue and learns who is next, whoever frees it offers it to the next, and what an operator does is told to all. A key that one
// has released and another of this store was granted in the same step was never free: nobody is woken.
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
		if m != nil && m.next[1].id != 0 { // the first has it now, and needs no head start
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
	case state == tenure.Free && t != nil && g.now.Sub(g.next.rec.Acquired) < shortTerm: // others may have come since it was granted
		g.wakes = wakeAll
		return before, []clientv3.Op{s.clearQueue(g.key)}
	case g.granted && state == tenure.Held && (t != nil || g.old != nil && (g.old.offeredTo > unnamed || g.old.rec.State == tenure.Held)):
		g.readsQueue = true
		before = []clientv3.Op{clientv3.OpDelete(s.names.waiter(g.key, s.id))}
		if who := g.old.absentee(); who != 0 && who != s.id {
			before = append(before, clientv3.OpDelete(s.names.waiter(g.key, who)))
		}
		return append(before, s.queueHead(g.key)), nil
	}
	return before, nil
}

// absent is whose turn it was that did not come, or did not come back: the store that the key was offered to, or granted to in its place.
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

// firstTwo reads who is next; one of three may be this store itself, which has the key.
func (s *Store) queueHead(key string) clientv3.Op {
	return clientv3.OpGet(s.names.queue(key), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(3))
}

// handedOver takes in what the write has brought to light.
func (s *Store) queueAnswered(g *group, revision int64, responses []*etcdserverpb.ResponseOp) {
	if g.leavesQueue {
		s.mu.Lock()
		if t := s.topics[g.key]; t != nil {
			t.leftAt = revision
			if t.queued && t.joinedAt < revision { // another of this store had come to wait there
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

// first finds the two stores that have waited longest for a key. Whom the key was granted to waits no more, though its place may still be there.
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

// offer names somebody for the keys that a batch has freed without knowing whom to name.
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
			// Until it is written, at least this store knows: it does not want the key back before others had it.
			known := *g.next
			known.offeredTo = next[0].id
			s.mu.Lock()
			s.addView(g.key, &view{mod: revision, asOf: revision, stored: &known})
			s.mu.Unlock()
		}
		s.offerLater(g.key, revision, g.next, next)
	}
}

// name offers a key that has been freed to the first of its queue, in the background, if nothing has become of it yet. Close waits for that: whoever frees a key and ends leaves nobody waiting.
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
		resp, err := s.txn(ctx, []clientv3.Cmp{same}, []clientv3.Op{clientv3.OpPut(s.names.record(key), d.encode()), s.offerTo(key, d.encodeWhole(), next)}, nil)
		if err == nil && resp.Succeeded {
			s.mu.Lock()
			s.addView(key, &view{mod: resp.Header.Revision, asOf: resp.Header.Revision, stored: &d})
			s.mu.Unlock()
		}
	})
}
