package etcd

import (
	"bytes"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// A store that has waited for a key lately leaves a bid in its queue entry when
// it asks again: its request without the secret, and the etcd lease and slot
// for its lease. A release awards the key to the first in the queue if its bid
// is young. It writes the record into that store's entry in the same
// transaction. So a hand-off is one write, and the new holder need not ask
// etcd. Its lease counts from the moment it sent the bid, which is before the
// award.
//
// An older bid may be that of a dead store. An award would keep the key from
// everybody for a TTL. So that store is offered the key instead: see queue.go.

// A bid is awarded only if it is younger than maxBidAge, and than its TTL
// divided by bidAgePart.
const (
	maxBidAge  = 2 * time.Second
	bidAgePart = 4
)

// bid is a request in a queue entry, and where its lease will be kept.
type bid struct {
	tenure.Bid
	lease clientv3.LeaseID
	page  pageID // a page of the bidding store
	slot  int
	mod   int64 // mod_revision of the queue entry,
	since int64 // and its create_revision
}

const bidFormat = 3

// encode packs a bid. It leaves out the key, which is in the name of the queue
// entry.
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

// isBid reports whether the value of a queue entry is a bid and nothing else.
func isBid(value []byte) bool { return len(value) > 0 && value[0] == bidFormat }

// decodeBid unpacks the bid in a queue entry. It returns nil if there is none
// or it cannot be read: a bid is only a hint.
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
	if r.err != nil || len(r.rest) > 0 || b.lease == 0 || b.page.store != store || b.slot >= pageSize ||
		b.Check() != nil {
		return nil
	}
	return b
}

// ownBid is a bid of this store.
type ownBid struct {
	request  tenure.Request // with its secret
	sent     time.Time      // on the monotonic clock,
	sentWall time.Time      // and on the store's clock
	page     *ownPage
	slot     int
	mod      int64 // mod_revision of the queue entry with the bid

	// The store's mutex protects the rest.
	awarded   bool // the bid was granted,
	claimed   bool // and a caller has asked for it,
	returning bool // or the store releases it again
	uncertain bool // the bid may be in its entry, or may arrive there later
}

// bidRemaining returns for how long a lease that was awarded to a bid still
// lasts. It counts from the sending of the bid, by the clock that has run
// further.
func (s *Store) bidRemaining(own *ownBid) time.Duration {
	return own.request.TTL - max(time.Since(own.sent), s.now().Sub(own.sentWall))
}

// newBid makes a bid of a request and takes a slot for it. It returns nil if
// there is no etcd lease yet that could carry the lease. The caller holds the
// mutex.
func (s *Store) newBid(req *tenure.Request) (*ownBid, string) {
	a := s.etcdLeases[leaseSeconds(req.TTL)]
	if a == nil || a.gone || a.id == 0 || !a.hasLiveKey || a.remaining() <= 0 {
		return nil, ""
	}
	own := &ownBid{request: *req, sent: time.Now(), sentWall: s.now()}
	own.page, own.slot = s.takeSlot(a, &member{key: req.Key, ttl: req.TTL, bid: own})
	b := bid{Bid: req.Bid(), lease: a.id, page: own.page.id, slot: own.slot}
	return own, b.encode()
}

// markUncertain notes that a bid may be in the queue or arrive there later. A
// sweep frees its slot when its TTL has passed. The caller holds the mutex.
func (s *Store) markUncertain(own *ownBid) {
	if own == nil || own.awarded || own.page.members[own.slot] == nil {
		return
	}
	own.uncertain = true
	own.page.members[own.slot].deadline = s.now().Add(s.bidRemaining(own))
	s.setAlarm(own.page)
}

// withdraw frees the slot of a bid that is no longer in the queue. An uncertain
// bid keeps its slot until its TTL has passed. If it is awarded after all, the
// store recognizes it and releases the key. The caller holds the mutex.
func (s *Store) withdraw(own *ownBid) {
	if own != nil && !own.awarded && !own.uncertain {
		s.leaveSlot(own.page, own.slot)
	}
}

// dropBid gives up the bid of a topic, which is no longer in its entry. The
// caller holds the mutex.
func (s *Store) dropBid(t *topic) {
	s.withdraw(t.bid)
	t.bid = nil
}

// awardable returns the bid to which a release can award the key, or nil.
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

// awardFreed awards a key that a group frees to the next in its queue, if the
// law allows it. It returns the record to write and the bid.
func (s *Store) awardFreed(g *group, v *view, freed tenure.Record) (tenure.Record, *bid) {
	b := s.awardable(g, v, &freed)
	if b == nil {
		return freed, nil
	}
	// Read the clock after the bid was seen, and so after it was sent. The
	// bidder's lease counts from the sending.
	g.now = s.now()
	if next, granted, err := tenure.Award(freed, b.Bid, g.now); err == nil && granted {
		return next, b
	}
	return freed, nil
}

// bidConditions returns the conditions of an award: the bid is unchanged, and
// the live key of its etcd lease exists.
func (s *Store) bidConditions(key string, b *bid) []clientv3.Cmp {
	return []clientv3.Cmp{s.liveKeyExists(b.lease), s.bidUnchanged(key, b)}
}

// bidUnchanged is the condition that a bid is still in its queue entry.
func (s *Store) bidUnchanged(key string, b *bid) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.names.waiter(key, b.page.store)), "=", b.mod)
}
