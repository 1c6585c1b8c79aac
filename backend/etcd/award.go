package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// unclaimed is how long a key that was granted to a bid of this store waits for whoever made the bid. It was woken, and asks at once; one that has gone meanwhile does not.
const unclaimed = 250 * time.Millisecond

// errGivenBack is why a request is not answered whose bid was granted when nobody seemed to want it any more.
var errGivenBack = errors.New("etcd: the key was granted and is being given back, because nobody asked for it any more; ask again")

// award takes note that a bid of this store was granted. The caller holds the mutex.
func (s *Store) award(p *openPage, m *member) {
	k := m.stake
	k.awarded = true
	m.deadline, m.placed, m.contended = s.now().Add(s.left(k)), true, true
	s.setAlarm(p)
	if t := s.waits[m.key]; t != nil {
		if t.stake != k {
			s.withdraw(t.stake)
		}
		t.queued, t.stake, t.award = false, nil, k
	}
	time.AfterFunc(unclaimed, func() { s.giveUp(k) })
}

// claim answers a request whose bid was granted. It needs not ask etcd: what it was told then is its answer, as if that had been on its way since. It reports whether the lane is done.
func (s *Store) claim(l *lane, v *view) bool {
	req := &l.requests[0]
	if len(l.requests) > 1 || req.Verb != tenure.Acquire || l.answers[0].Err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, m := s.mine(v.deed)
	if m == nil || m.stake == nil || m.stake.claimed || v.deed.rec.Grant != req.Secret.Grant() {
		return false
	}
	if m.stake.given {
		l.fail(errGivenBack)
		return true
	}
	m.stake.claimed = true
	l.step = finished
	s.learn(l.key, m)
	return true
}

// learn asks who is next in the queue of a key that this store was granted by a bid. The caller holds the mutex.
func (s *Store) learn(key string, m *member) {
	if s.closed.Load() {
		return
	}
	asking := make(chan struct{})
	m.asking = asking
	s.done.Go(func() {
		defer close(asking)
		s.seeWhoIsNext(s.life, key, m)
	})
}

// seeWhoIsNext looks at the queue of a key that this store holds.
func (s *Store) seeWhoIsNext(ctx context.Context, key string, m *member) {
	resp, err := s.txn(ctx, nil, []clientv3.Op{s.firstTwo(key)}, nil)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var except identity
	if m.placed {
		except = s.id
	}
	m.heirs = s.first(key, resp.Responses[0].GetResponseRange().Kvs, except)
}

// meet makes sure that who is next is known before a key is released that others were waiting for a moment ago: with it, the release grants it to them.
func (s *Store) meet(ctx context.Context, l *lane) {
	if len(l.requests) > 1 || l.requests[0].Verb != tenure.Release || l.view == nil {
		return
	}
	s.mu.Lock()
	_, m := s.mine(l.view.deed)
	if m == nil || !m.contended {
		s.mu.Unlock()
		return
	}
	asking := m.asking
	s.mu.Unlock()
	if asking != nil {
		select {
		case <-asking:
		default:
			bounded, cancel := context.WithTimeout(ctx, grace)
			defer cancel()
			select {
			case <-asking:
			case <-bounded.Done():
			}
			return
		}
	}
	s.mu.Lock()
	nobody := m.heirs[0].id == 0
	s.mu.Unlock()
	if nobody { // or they have come since
		s.seeWhoIsNext(ctx, l.key, m)
	}
}

// giveUp gives a key back that was granted to a bid which nobody stands by any more.
func (s *Store) giveUp(k *stake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !k.awarded || k.claimed || k.given || s.closed.Load() {
		return
	}
	k.given = true
	s.done.Go(func() { // Close waits for it
		release := tenure.Request{Verb: tenure.Release, Key: k.request.Key, Secret: k.request.Secret, Failed: true}
		for s.left(k) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*requestTimeout)
			answers := make([]store.Answer, 1)
			lanes := split([]tenure.Request{release}, answers)
			s.carryOut(ctx, lanes)
			cancel()
			if err := lanes[0].answers[0].Err; !errors.Is(err, store.ErrUnknown) || s.life.Err() != nil {
				return
			}
			if sleep(s.life, grace) != nil {
				return
			}
		}
	})
}

// revise gives up, after a refusal, what an earlier request of this store has left behind: a bid that is not the one that waits now, or what was granted to it. The caller holds the mutex.
func (s *Store) revise(t *topic, refused *tenure.Request) {
	if t.award != nil && !t.award.claimed && t.award.request.Secret != refused.Secret {
		k := t.award
		time.AfterFunc(0, func() { s.giveUp(k) })
	}
	k := t.stake
	if k == nil || k.request.Secret == refused.Secret || s.closed.Load() {
		return
	}
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, requestTimeout)
		defer cancel()
		t.turn <- struct{}{}
		defer func() { <-t.turn }()
		place := s.names.waiter(t.key, s.id)
		s.mu.Lock()
		mod := k.mod
		s.mu.Unlock()
		same := clientv3.Compare(clientv3.ModRevision(place), "=", mod)
		resp, err := s.txn(ctx, []clientv3.Cmp{same}, []clientv3.Op{clientv3.OpPut(place, "", clientv3.WithIgnoreLease())}, nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && resp.Succeeded && t.stake == k {
			s.withdraw(k)
			t.stake = nil
		}
	})
}
