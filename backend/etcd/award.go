package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// claimWithin is how long an award of this store waits for the caller that made
// the bid. The caller was woken, so it asks at once unless it has left.
const claimWithin = 250 * time.Millisecond

// errReturned is the error of a caller that asks for an award while the store
// releases it.
var errReturned = errors.New("etcd: the key was granted and is being given back, " +
	"because nobody asked for it any more; ask again")

// noteAward notes that a bid of this store was granted. The caller holds the
// mutex.
func (s *Store) noteAward(p *ownPage, m *member, v *view) {
	own := m.bid
	own.awarded = true
	m.deadline, m.inQueue = s.now().Add(s.bidRemaining(own)), true
	if d := v.stored; d.clock == s.domain && d.rec.Deadline.After(m.deadline) {
		m.deadline = d.rec.Deadline // until then the page does not say that it is over
	}
	s.setAlarm(p)
	// A later joinedAt means that this store has joined the queue again.
	if t := s.topics[m.key]; t != nil && t.joinedAt < v.mod {
		s.dropBid(t)
		t.queued = false
	}
	s.awaitClaim(own)
}

// awaitClaim returns an award that nobody has claimed after a while. It waits
// longer while a caller waits here: that caller was woken and may be slow. If
// it has come for something else, it is refused, and the refusal drops the bid.
func (s *Store) awaitClaim(own *ownBid) {
	time.AfterFunc(claimWithin, func() {
		s.mu.Lock()
		t := s.topics[own.request.Key]
		waits := t != nil && len(t.waiters) > 0 && !own.claimed && s.bidRemaining(own) > own.request.TTL/2
		s.mu.Unlock()
		if waits {
			s.awaitClaim(own)
			return
		}
		s.returnAward(own)
	})
}

// claimAward notes that a caller asks for an award of this store. From then on
// the store does not return it. It reports whether the group is finished. The
// request of the bid itself needs no call of etcd: the award is its answer.
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

// unclaimedAward returns the own bid to which a key was awarded, if no caller
// has claimed it yet, or nil. The caller holds the mutex.
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

// returnSoon returns an award after a moment. Its caller has left, it seems, or
// is about to ask.
func (s *Store) returnSoon(own *ownBid) {
	if own != nil {
		time.AfterFunc(headStart, func() { s.returnAward(own) })
	}
}

// returnAward releases a key that was awarded to a bid, because no caller wants
// it any more.
func (s *Store) returnAward(own *ownBid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !own.awarded || own.claimed || own.returning || s.closed.Load() {
		return
	}
	own.returning = true
	if t := s.topics[own.request.Key]; t != nil {
		t.returnedAt = time.Now()
	}
	s.done.Go(func() {
		release := tenure.Request{Verb: tenure.Release, Key: own.request.Key, Secret: own.request.Secret, Failed: true}
		for s.bidRemaining(own) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*requestTimeout)
			answers := make([]store.Answer, 1)
			groups := split([]tenure.Request{release}, answers)
			s.carryOut(ctx, groups)
			cancel()
			if err := groups[0].answers[0].Err; !errors.Is(err, store.ErrUnknown) || clock.Sleep(s.life, grace) != nil {
				return
			}
		}
	})
}

// withdrawAll withdraws the bids of a store that closes, and returns its
// awards. Otherwise those keys would be held until their deadlines.
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
		// The record tells of an award, even if the entry is already gone.
		for _, own := range part {
			ops = append(ops, clientv3.OpDelete(s.names.waiter(own.request.Key, s.id)),
				clientv3.OpGet(s.names.record(own.request.Key)))
		}
		resp, err := s.txn(ctx, nil, ops, nil)
		if err != nil {
			break
		}
		read := results(resp.Responses)
		for i, own := range part {
			if v, err := s.parseView(lookup{key: own.request.Key}, read[2*i+1:2*i+2]); err == nil {
				v.asOf = resp.Header.Revision
				s.mu.Lock()
				s.addView(own.request.Key, v)
				s.mu.Unlock()
			}
		}
	}
	for _, own := range bids {
		s.returnAward(own)
	}
}

// dropOutdatedBid handles a refusal. If the bid in the queue, or an unclaimed
// award, is of another request than the refused one, it gives that up. The
// caller holds the mutex.
func (s *Store) dropOutdatedBid(t *topic, refused *tenure.Request) {
	if own := s.unclaimedAward(t.key); own != nil && own.request.Secret != refused.Secret {
		s.returnSoon(own)
	}
	own := t.bid
	if own == nil || own.request.Secret == refused.Secret || s.closed.Load() {
		return
	}
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, requestTimeout)
		defer cancel()
		t.lock <- struct{}{}
		defer func() { <-t.lock }()
		entry := s.names.waiter(t.key, s.id)
		s.mu.Lock()
		mod := own.mod
		s.mu.Unlock()
		same := clientv3.Compare(clientv3.ModRevision(entry), "=", mod)
		resp, err := s.txn(ctx, []clientv3.Cmp{same},
			[]clientv3.Op{clientv3.OpPut(entry, "", clientv3.WithIgnoreLease())}, nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && resp.Succeeded && t.bid == own {
			s.withdraw(own)
			t.bid = nil
		}
	})
}
