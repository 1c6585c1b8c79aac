package etcd

import (
	"bytes"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// A store that has waited for a key lately leaves its request in its place in the queue when it asks again: a bid, with where the lease would live, and without the secret. Whoever frees the key grants it to the first in the queue in
// the same step, if that one has left a bid a moment ago, and writes the record into its place: a hand-off is one write, and the new holder needs to ask nobody. Its lease counts from when it sent the bid, which was before it was granted.
//
// One that has waited for longer may be dead, and would keep the key from everybody until its lease is over. It is offered the key instead: see queue.go.

// young is how old a bid may be that is granted, and freshOf which part of its TTL.
const (
	maxBidAge  = 2 * time.Second
	bidAgePart = 4
)

// bid is a request that waits in a place, and where its lease is to live.
type bid struct {
	tenure.Bid
	lease clientv3.LeaseID
	page  pageID // of the store that bids
	slot  int
	mod   int64 // of the place,
	since int64 // and the revision at which it was taken
}

const bidFormat = 3

// encode packs a bid. Its key is not in it: that is its place's name.
func (b *bid) encode() string {
	q := &b.Request
	w := &writer{out: make([]byte, 0, 128)}
	w.out = append(w.out, bidFormat)
	w.number(int64(b.lease))
	w.id(b.page.store)
	w.unsigned(uint64(b.page.number))
	w.unsigned(uint64(b.slot))
	w.grant(b.Grant)
	w.text(q.Owner)
	w.text(q.Instance)
	w.span(q.TTL)
	w.number(int64(q.Above))
	w.span(q.Every)
	w.span(q.HoldFor)
	w.unsigned(uint64(len(q.Guards)))
	for _, g := range q.Guards {
		w.text(g)
	}
	return string(w.out)
}

// isBid reports whether a place has nothing but a bid in it.
func isBid(value []byte) bool { return len(value) > 0 && value[0] == bidFormat }

// decodeBid unpacks a bid, or returns nil: what is in a place is a hint, and one that cannot be read is none.
func decodeBid(key string, store identity, kv *mvccpb.KeyValue) *bid {
	value := bytes.TrimPrefix(kv.Value, []byte(youAreNext))
	if !isBid(value) {
		return nil
	}
	r := &reader{rest: value[1:]}
	b := &bid{mod: kv.ModRevision, since: kv.CreateRevision, lease: clientv3.LeaseID(r.number())}
	b.page = pageID{store: r.id(), number: uint32(r.unsigned())}
	b.slot, b.Grant = int(r.unsigned()), r.grant()
	q := &b.Request
	q.Verb, q.Key, q.Owner, q.Instance = tenure.Acquire, key, r.text(), r.text()
	q.TTL, q.Above, q.Every, q.HoldFor = r.span(), fence.Token(r.number()), r.span(), r.span()
	for range r.count(tenure.MaxGuards) {
		q.Guards = append(q.Guards, r.text())
	}
	if r.err != nil || len(r.rest) > 0 || b.lease == 0 || b.page.store != store || b.slot >= pageSize || b.Check() != nil {
		return nil
	}
	return b
}

// stake is a bid of this store.
type ownBid struct {
	request  tenure.Request // with its secret
	sent     time.Time      // on the monotonic clock,
	sentWall time.Time      // and on the store's
	page     *ownPage
	slot     int
	mod      int64 // of the place, when it is there

	// Under the store's mutex.
	awarded   bool // it was granted,
	claimed   bool // and whoever asked for it knows,
	returning bool // or it is being given back
	uncertain bool // nobody knows whether it has reached its place, or yet will
}

// left is what is left of a lease that was granted to a bid. It counts from the sending of the bid, by whichever clock has run further.
func (s *Store) bidRemaining(k *ownBid) time.Duration {
	return k.request.TTL - max(time.Since(k.sent), s.now().Sub(k.sentWall))
}

// stakeFor makes a bid of a request that is about to take a place in a queue, if a lease of its TTL can live somewhere. The caller holds the mutex.
func (s *Store) newBid(req *tenure.Request) (*ownBid, string) {
	a := s.etcdLeases[leaseSeconds(req.TTL)]
	if a == nil || a.gone || a.id == 0 || !a.hasLiveKey || a.remaining() <= 0 {
		return nil, ""
	}
	k := &ownBid{request: *req, sent: time.Now(), sentWall: s.now()}
	k.page, k.slot = s.takeSlot(a, &member{key: req.Key, ttl: req.TTL, bid: k})
	b := bid{Bid: req.Bid(), lease: a.id, page: k.page.id, slot: k.slot}
	return k, b.encode()
}

// doubt notes that nobody knows whether a bid is in the queue, or yet will be. A sweep takes it off its page when its time is over. The caller holds the mutex.
func (s *Store) markUncertain(k *ownBid) {
	if k == nil || k.awarded || k.page.members[k.slot] == nil {
		return
	}
	k.uncertain = true
	k.page.members[k.slot].deadline = s.now().Add(s.bidRemaining(k))
	s.setAlarm(k.page)
}

// withdraw gives up the seat of a bid that is not in the queue any more. One that may yet come there keeps it until its time is over: if it is granted after all, it is known as this store's, and given back. The caller holds the mutex.
func (s *Store) withdraw(k *ownBid) {
	if k != nil && !k.awarded && !k.uncertain {
		s.leaveSlot(k.page, k.slot)
	}
}

// takeBack gives up the bid of a topic, which is not in its place any more. The caller holds the mutex.
func (s *Store) dropBid(t *topic) {
	s.withdraw(t.bid)
	t.bid = nil
}

// heir is the bid that a key is granted to in the step that frees it, or nil.
func (s *Store) awardable(g *group, v *view, freed *tenure.Record) *bid {
	last := len(g.requests) - 1
	if g.noAward || g.granted || freed.State != tenure.Free || g.requests[last].Verb != tenure.Release {
		return nil
	}
	s.mu.Lock()
	_, m := s.ownMember(v.stored)
	var b *bid
	if m != nil {
		b = m.next[0].bid
	}
	s.mu.Unlock()
	if b == nil || b.page.store == s.id || v.stored.isShelved(b.Grant) {
		return nil
	}
	if age, known := s.ages.of(b.since); !known || age > min(s.maxBidAge, b.Request.TTL/bidAgePart) {
		return nil
	}
	return b
}

// bequeath grants a key that a lane frees to the next in its queue, if the law lets it.
func (s *Store) awardFreed(g *group, v *view, freed tenure.Record) (tenure.Record, *bid) {
	b := s.awardable(g, v, &freed)
	if b == nil {
		return freed, nil
	}
	g.now = s.now() // after the bid was seen, and so after it was sent: its holder counts from then
	if next, granted, err := tenure.Award(freed, b.Bid, g.now); err == nil && granted {
		return next, b
	}
	return freed, nil
}

// inherits are the conditions on which a bid is granted: that it is still there, and that its lease has something to live on.
func (s *Store) bidConditions(key string, b *bid) []clientv3.Cmp {
	return []clientv3.Cmp{s.liveKeyExists(b.lease), s.bidUnchanged(key, b)}
}

// stands compares a bid with what is in its place.
func (s *Store) bidUnchanged(key string, b *bid) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.names.waiter(key, b.page.store)), "=", b.mod)
}
