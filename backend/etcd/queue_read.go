package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/tenure"
)

// The holder of a key that changes hands often reads the key's queue while it
// works. Then its release can award the key in one round trip.

// queuePolls are the pauses after which a new holder reads the queue again, as
// long as it is empty. Earlier holders of the key come back to it soon.
var queuePolls = []time.Duration{
	time.Millisecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond,
	8 * time.Millisecond, 16 * time.Millisecond, 32 * time.Millisecond,
}

// startQueueRead reads the queue of a key that was awarded to this store, in
// the background. The caller holds the mutex.
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

// pollQueue reads the queue of a held key a few times, until somebody waits.
func (s *Store) pollQueue(key string, m *member) {
	for _, pause := range s.queuePolls {
		if !s.nobodyWaits(m) || clock.Sleep(s.life, pause) != nil || !s.nobodyWaits(m) {
			return
		}
		s.readQueue(s.life, key, m)
	}
}

// nobodyWaits reports whether this store holds the key and knows of nobody that
// waits for it.
func (s *Store) nobodyWaits(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !m.removed && m.next[0].id == 0
}

// readQueue reads the queue of a held key and notes the successors.
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

// awaitQueueRead lets a release wait for a queue read that is in flight. Its
// answer comes sooner than the next store could ask.
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
	// A release does not wait for a member that hangs.
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	select {
	case <-asking:
	case <-ctx.Done():
	}
}
