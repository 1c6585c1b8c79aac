package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// claimIn is how long a key that was granted to a bid of this store waits for whoever made the bid. It was woken, and asks at once; one that has gone meanwhile does not.
const claimWithin = 250 * time.Millisecond

// errGivenBack is why a request is not answered whose bid was granted when nobody seemed to want it any more.
var errReturned = errors.New("etcd: the key was granted and is being given back, because nobody asked for it any more; ask again")

// award takes note that a bid of this store was granted. The caller holds the mutex.
func (s *Store) noteAward(p *ownPage, m *member, v *view) {
	k := m.bid
	k.awarded = true
	m.deadline, m.inQueue = s.now().Add(s.bidRemaining(k)), true
	if d := v.stored; d.clock == s.domain && d.rec.Deadline.After(m.deadline) {
		m.deadline = d.rec.Deadline // before that the page says to nobody that it is over
	}
	s.setAlarm(p)
	if t := s.topics[m.key]; t != nil && t.joinedAt < v.mod { // else it has come again
		s.dropBid(t)
		t.queued = false
	}
	s.awaitClaim(k)
}

// expect gives a key back that nobody has claimed after a while. There is no hurry while somebody waits here, who was woken and may be slow: one that has come for something else is refused, and says so.
func (s *Store) awaitClaim(k *ownBid) {
	time.AfterFunc(claimWithin, func() {
		s.mu.Lock()
		t := s.topics[k.request.Key]
		waits := t != nil && len(t.waiters) > 0 && !k.claimed && s.bidRemaining(k) > k.request.TTL/2
		s.mu.Unlock()
		if waits {
			s.awaitClaim(k)
			return
		}
		s.returnAward(k)
	})
}

// claim takes note that somebody asks for what a bid was granted: from then on it is not given back. It reports whether the lane is done. A request that was made a bid of needs not ask etcd: what this store was told then is its answer, as
// if that had been on its way since.
func (s *Store) claimAward(g *group, v *view, changed bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, m := s.ownMember(v.stored)
	if m == nil || m.bid == nil || m.bid.claimed {
		return false
	}
	wanted := false
	for i, req := range g.requests {
		wanted = wanted || g.answers[i].Err == nil && req.Verb != tenure.Release && req.Secret == m.bid.request.Secret
	}
	switch {
	case !wanted:
		return false
	case m.bid.returning:
		g.fail(errReturned)
		return true
	}
	m.bid.claimed = true
	s.startQueueRead(g.key, m)
	if changed || len(g.requests) > 1 {
		return false
	}
	g.step = finished
	return true
}

// unclaimed is the bid that a key is granted to and that nobody has claimed yet, if it is this store's. The caller holds the mutex.
func (s *Store) unclaimedAward(key string) *ownBid {
	e := s.cache.byKey[key]
	if e == nil {
		return nil
	}
	if _, m := s.ownMember(e.Value.(*cacheEntry).view.stored); m != nil && m.bid != nil && !m.bid.claimed {
		return m.bid
	}
	return nil
}

// hurry gives a key back soon: whoever it was granted to seems to have gone, or is about to ask.
func (s *Store) returnSoon(k *ownBid) {
	if k != nil {
		time.AfterFunc(headStart, func() { s.returnAward(k) })
	}
}

// giveUp gives a key back that was granted to a bid which nobody stands by any more.
func (s *Store) returnAward(k *ownBid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !k.awarded || k.claimed || k.returning || s.closed.Load() {
		return
	}
	k.returning = true
	if t := s.topics[k.request.Key]; t != nil {
		t.returnedAt = time.Now()
	}
	s.done.Go(func() { // Close waits for it
		release := tenure.Request{Verb: tenure.Release, Key: k.request.Key, Secret: k.request.Secret, Failed: true}
		for s.bidRemaining(k) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*requestTimeout)
			answers := make([]store.Answer, 1)
			groups := split([]tenure.Request{release}, answers)
			s.carryOut(ctx, groups)
			cancel()
			if err := groups[0].answers[0].Err; !errors.Is(err, store.ErrUnknown) || sleep(s.life, grace) != nil {
				return
			}
		}
	})
}

// resign takes back the bids of a store that ends, and gives back what they were granted: to others it would be held until its time is over.
func (s *Store) withdrawAll() {
	s.mu.Lock()
	var bids []*ownBid
	for _, p := range s.pages {
		for _, m := range p.members {
			if m.bid != nil && !m.bid.claimed {
				bids = append(bids, m.bid)
			}
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout/2)
	defer cancel()
	for part := range slices.Chunk(bids, maxGroups/2) {
		var ops []clientv3.Op
		for _, k := range part { // what it was granted is in the record, whoever has taken it off the queue
			ops = append(ops, clientv3.OpDelete(s.names.waiter(k.request.Key, s.id)), clientv3.OpGet(s.names.record(k.request.Key)))
		}
		resp, err := s.txn(ctx, nil, ops, nil)
		if err != nil {
			break
		}
		read := results(resp.Responses)
		for i, k := range part {
			if v, err := s.parseView(lookup{key: k.request.Key}, read[2*i+1:2*i+2]); err == nil {
				v.asOf = resp.Header.Revision
				s.mu.Lock()
				s.addView(k.request.Key, v)
				s.mu.Unlock()
			}
		}
	}
	for _, k := range bids {
		s.returnAward(k)
	}
}

// revise gives up, after a refusal, what an earlier request of this store has left behind: a bid that is not the one that waits now, or what was granted to it. The caller holds the mutex.
func (s *Store) dropOutdatedBid(t *topic, refused *tenure.Request) {
	if k := s.unclaimedAward(t.key); k != nil && k.request.Secret != refused.Secret {
		s.returnSoon(k)
	}
	k := t.bid
	if k == nil || k.request.Secret == refused.Secret || s.closed.Load() {
		return
	}
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, requestTimeout)
		defer cancel()
		t.lock <- struct{}{}
		defer func() { <-t.lock }()
		place := s.names.waiter(t.key, s.id)
		s.mu.Lock()
		mod := k.mod
		s.mu.Unlock()
		same := clientv3.Compare(clientv3.ModRevision(place), "=", mod)
		resp, err := s.txn(ctx, []clientv3.Cmp{same}, []clientv3.Op{clientv3.OpPut(place, "", clientv3.WithIgnoreLease())}, nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && resp.Succeeded && t.bid == k {
			s.withdraw(k)
			t.bid = nil
		}
	})
}
