package sim

import (
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// redisServer is a store like Redis. A batch is one script, which is one step
// at one time. Replicas lag behind: when one takes over, the newest writes are
// lost.
type redisServer struct {
	*core
	lag time.Duration // how far replicas lag behind
}

func newRedisServer(w *world) *redisServer {
	return &redisServer{core: newCore(w, true), lag: between(w.stream("replica"), time.Millisecond, 2*time.Second)}
}

// newEtcdServer makes a store like etcd: one step at a time, and no replica
// takes over. It wakes the first waiter at once, and the others a moment later.
func newEtcdServer(w *world) *redisServer {
	s := newRedisServer(w)
	s.inTurn = true
	return s
}

func (s *redisServer) apply(c *client, requests []tenure.Request, done func([]store.Answer, error)) func() {
	s.w.ops += len(requests)
	s.w.carry(s.conn(c), func(m message, reply func(func())) {
		answers := s.carryOut(c, requests, m)
		reply(func() { done(answers, nil) })
	}, func(err error) { done(nil, err) })
	return func() {}
}

// carryOut applies a client's requests, in one step.
func (s *redisServer) carryOut(c *client, requests []tenure.Request, m message) []store.Answer {
	now := s.now()
	answers := make([]store.Answer, len(requests))
	for i, req := range requests {
		next, changed, err := s.w.law(s.held(req.Key), req, now)
		if err == nil && changed {
			s.write(req, kept{record: next}, m)
		}
		answers[i] = store.Answer{
			Record: next, Now: tenure.Time(now), Err: err,
			Awaited: req.Verb == tenure.Release && s.awaited(req.Key, c),
		}
	}
	return answers
}

// get sometimes reads from a replica.
func (s *redisServer) get(c *client, key string, done func(tenure.Record, time.Time, error)) {
	s.w.carry(s.conn(c), func(_ message, reply func(func())) {
		rec, now := s.held(key), s.now()
		if s.w.fault(StaleRead) {
			rec = s.past(key, s.w.now-s.lag).record
		}
		reply(func() { done(rec, now, nil) })
	}, func(err error) { done(tenure.Record{}, time.Time{}, err) })
}

// law applies the law of ownership, or the mutant's.
func (w *world) law(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error) {
	if w.mutant != nil && w.mutant.Apply != nil {
		return w.mutant.Apply(rec, req, now)
	}
	return tenure.Apply(rec, req, now)
}
