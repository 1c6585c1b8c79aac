package sim

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// etcdServer is a store like etcd. When a key is released, the same step grants
// it to the first waiter in the queue, if that waiter has left a young bid. The
// releaser first reads who that is. The step happens only if that bid is still
// in the queue. Each client has a bidder, which places its bids and answers for
// their grants.
type etcdServer struct {
	*core
	places  []place // the queues of all keys, in order
	former  []queue // earlier states of places, for undoing
	bidders map[*client]*bidder
	bids    int
	steps   int // counts the steps, like etcd's revision
}

const (
	// young is the greatest age at which a bid is granted. The age must also be
	// at most 1/freshOf of its TTL.
	young   = 2 * time.Second
	freshOf = 4
	// firstWait is how long a release waits to learn who is first.
	firstWait = 100 * time.Millisecond
)

func newEtcdServer(w *world) *etcdServer {
	return &etcdServer{core: newCore(w, true), bidders: map[*client]*bidder{}}
}

func (s *etcdServer) apply(c *client, requests []tenure.Request, done func([]store.Answer, error)) func() {
	began := s.w.now
	return apart(requests, func(req tenure.Request, done func(store.Answer)) func() {
		call := &etcdCall{s: s, d: s.bidder(c), c: c, request: req, began: began, done: done}
		switch req.Verb {
		case tenure.Acquire:
			call.acquire()
		case tenure.Release:
			call.readFirst()
		default:
			call.send(nil)
		}
		return call.abandon
	}, done)
}

// etcdCall is one call of a client, with one request.
type etcdCall struct {
	s       *etcdServer
	d       *bidder
	c       *client
	request tenure.Request
	began   time.Duration
	bid     *sentBid // the bid that goes with the request
	sent    instant
	over    bool
	done    func(store.Answer)
}

// abandon ends the call from outside. Its answer is ignored.
func (t *etcdCall) abandon() { t.over = true }

func (t *etcdCall) finish(a store.Answer) {
	if !t.over {
		t.over = true
		t.done(a)
	}
}

func (t *etcdCall) conn() conn {
	l := t.s.conn(t.c)
	l.began = t.began
	return l
}

// acquire lets the bidder answer, if a bid of this request was granted.
// Otherwise it sends the request, with a bid if somebody here watches the key.
func (t *etcdCall) acquire() {
	req := t.request
	if a, known := t.d.claim(req); known {
		t.c.soon(t.s.w.now+between(t.c.rng, time.Microsecond, time.Millisecond), func() { t.finish(a) })
		return
	}
	if t.d.watches(req.Key) {
		t.bid = t.d.bid(req)
	}
	t.send(nil)
}

// readFirst reads who is first in the queue, and then sends the release.
func (t *etcdCall) readFirst() {
	met := false
	release := func(b *bid) {
		if !met && !t.over {
			met = true
			t.send(b)
		}
	}
	t.s.w.carry(t.conn(), func(_ message, reply func(func())) {
		next := t.s.next(t.request.Key, t.d)
		reply(func() { release(next) })
	}, func(error) { release(nil) })
	t.c.timer(firstWait, func() { release(nil) })
}

// send makes one round trip. winner is the bid that shall get the released key.
func (t *etcdCall) send(winner *bid) {
	s, posted := t.s, t.s.now()
	s.w.ops++
	t.sent = t.c.Now()
	s.w.carry(t.conn(), func(m message, reply func(func())) {
		now := s.now()
		s.steps++
		step, a := s.steps, s.serve(t, t.request, winner, now, posted, m)
		reply(func() {
			if t.over {
				return
			}
			if t.request.Verb == tenure.Acquire {
				a = t.d.answered(t.request, t.bid, step, a)
			}
			t.finish(a)
		})
	}, func(err error) { t.finish(store.Failed(1, err)[0]) })
}

// serve is the atomic step for a request.
func (s *etcdServer) serve(
	t *etcdCall, req tenure.Request, winner *bid, now, posted time.Time, m message,
) store.Answer {
	rec := s.held(req.Key)
	next, changed, err := s.w.law(rec, req, now)
	switch {
	case err == nil && changed && req.Verb == tenure.Release:
		winner = s.winner(winner, t.d, now)
		if awarded, granted := s.award(next, winner, now, posted); granted {
			s.handOver(t, req, next, awarded, winner, m)
			return store.Answer{Record: next, Now: tenure.Time(now), Awaited: true}
		}
		s.write(req, kept{record: next}, m)
		s.offered(req.Key)
	case err == nil && changed:
		s.write(req, kept{record: next}, m)
		if req.Verb == tenure.Acquire {
			s.leave(req.Key, t.d)
		}
	case errors.Is(err, tenure.ErrHeld) && t.bid != nil:
		s.enter(req, t, m)
	case err != nil && req.Verb == tenure.Release && s.w.mutant.is("award-after-refusal"):
		freed := rec
		freed.State, freed.Ended = tenure.Free, tenure.EndReleased
		freed.Deadline, freed.HoldUntil = tenure.Time(now), time.Time{}
		winner = s.winner(winner, t.d, now)
		if awarded, granted := s.award(freed, winner, now, posted); granted && !rec.IsZero() {
			s.records[req.Key] = kept{record: awarded, modified: now}
			s.w.judge.awarded(winner, rec, awarded)
		}
	}
	return store.Answer{Record: next, Now: tenure.Time(now), Err: err}
}

// winner returns the bid that gets a key which a client frees, or nil. It is
// the bid that the client knows, if it still stands and is young.
func (s *etcdServer) winner(known *bid, by *bidder, now time.Time) *bid {
	found := s.standing(known)
	if s.w.mutant.is("award-to-absent") {
		found = known
	}
	switch {
	case known == nil || known.sent.d == by:
		return nil
	case found == nil:
		s.w.cover("award", "the bid had gone")
	case now.Sub(found.placed) > min(young, found.Request.TTL/freshOf):
		s.w.cover("award", "the bid was old")
		return nil
	}
	return found
}

// award returns the record after a freed key was granted to a bid, and whether
// the law allows that.
func (s *etcdServer) award(freed tenure.Record, winner *bid, now, posted time.Time) (tenure.Record, bool) {
	if winner == nil {
		return freed, false
	}
	switch {
	case s.w.mutant.is("award-over-hold"):
		freed.HoldUntil = time.Time{}
	case s.w.mutant.is("award-again"):
		freed = forgetful(freed)
	case s.w.mutant.is("award-dated-by-sender"):
		now = posted
	}
	next, granted, err := tenure.Award(freed, winner.Bid, now)
	if err != nil || !granted {
		s.w.cover("award", "refused by the law")
		return freed, false
	}
	return next, true
}

// handOver writes a release and the grant that follows it, in one write.
func (s *etcdServer) handOver(t *etcdCall, req tenure.Request, freed, awarded tenure.Record, winner *bid, m message) {
	before := s.records[req.Key]
	s.written = append(s.written, former{req.Key, before, s.w.now})
	s.records[req.Key] = kept{record: awarded, modified: s.now()}
	s.w.judge.committed(req, before.record, freed, m)
	s.w.judge.awarded(winner, freed, awarded)
	if !s.w.mutant.is("award-again") {
		s.leave(req.Key, winner.sent.d)
	}
	k := winner.sent
	delay, late := between(k.d.c.rng, time.Millisecond, 5*time.Millisecond), upTo(k.d.c.rng, 3*time.Second)
	if s.w.fault(LostHint) {
		return
	}
	if s.w.fault(LateHint) {
		delay += late
	}
	k.d.soon(s.w.now+delay, func() { k.d.told(k, awarded, t.sent) })
}
