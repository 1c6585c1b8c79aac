package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// Who holds a key that goes around finds out who is next while it works, so that its release can grant it to that one in the same step, and is one round trip.

// comeBack are the pauses after which a store that has just been granted a key looks at its queue again, for as long as nobody is there: those who had the key before come back to it.
var queuePolls = []time.Duration{time.Millisecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond, 16 * time.Millisecond, 32 * time.Millisecond}

// learn finds out who is next in the queue of a key that was granted to a bid, so that its release can grant it to that one. The caller holds the mutex.
func (s *Store) startQueueRead(key string, m *member) {
	if s.closed.Load() {
		return
	}
	asking := make(chan struct{})
	m.queueRead = asking
	s.done.Go(func() {
		s.readQueue(s.life, key, m)
		close(asking)
		s.pollQueue(key, m)
	})
}

// lookBack looks at the queue of a key that goes around until somebody is there, a few times.
func (s *Store) pollQueue(key string, m *member) {
	for _, pause := range s.queuePolls {
		if !s.nobodyWaits(m) || sleep(s.life, pause) != nil || !s.nobodyWaits(m) {
			return
		}
		s.readQueue(s.life, key, m)
	}
}

// alone reports whether this store holds a key and knows of nobody who waits for it.
func (s *Store) nobodyWaits(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !m.removed && m.next[0].id == 0
}

// seeWhoIsNext looks at the queue of a key that this store holds.
func (s *Store) readQueue(ctx context.Context, key string, m *member) {
	resp, err := s.txn(ctx, nil, []clientv3.Op{s.queueHead(key)}, nil)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var except identity
	if m.inQueue {
		except = s.id
	}
	m.next = s.firstWaiting(key, resp.Responses[0].GetResponseRange().Kvs, except)
}

// meet waits, before a key is released, for the answer to who is next if that is on its way: it is sooner there than that one could ask.
func (s *Store) awaitQueueRead(ctx context.Context, g *group) {
	if len(g.requests) > 1 || g.requests[0].Verb != tenure.Release || g.view == nil {
		return
	}
	s.mu.Lock()
	_, m := s.ownMember(g.view.stored)
	var asking chan struct{}
	if m != nil {
		asking = m.queueRead
	}
	s.mu.Unlock()
	if asking == nil {
		return
	}
	select {
	case <-asking:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, grace) // the release is not to wait for a member that hangs
	defer cancel()
	select {
	case <-asking:
	case <-ctx.Done():
	}
}
