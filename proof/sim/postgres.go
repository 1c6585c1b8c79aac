package sim

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// postgresServer is a store like PostgreSQL. A batch is one transaction. It
// locks the row of each key before it reads the clock, and skips rows that
// others have locked. Its changes show when it commits. Each skipped key is
// then asked for alone, and waits for its row.
type postgresServer struct {
	*core
	locks   map[string]*transaction
	waiting []*transaction // for a row, which goes to a random one of them
	rng     *rand.Rand
	live    []*transaction
}

// lockWait is how long a transaction waits for a row.
const lockWait = time.Second

// errLocked is the error of a request whose row stayed locked.
var errLocked = errors.New("another transaction has this key's row locked")

func newPostgresServer(w *world) *postgresServer {
	return &postgresServer{core: newCore(w, true), locks: map[string]*transaction{}, rng: w.stream("rows")}
}

// transaction is one call on the server.
type transaction struct {
	s        *postgresServer
	c        *client
	requests []tenure.Request
	order    []int // the requests by key
	patient  bool
	m        message
	began    time.Time
	commit   func(answers []store.Answer, skipped []int)
	abort    func(error)

	next    int // index in order
	answers []store.Answer
	changes map[int]tenure.Record
	skipped []int
	over    bool
}

func (s *postgresServer) apply(c *client, requests []tenure.Request, done func([]store.Answer, error)) func() {
	began := s.w.now
	s.call(c, requests, began, func(answers []store.Answer, skipped []int, err error) {
		if err != nil || len(skipped) == 0 {
			done(answers, err)
			return
		}
		var rest []tenure.Request
		for _, i := range skipped {
			rest = append(rest, requests[i])
		}
		apart(rest, func(req tenure.Request, done func(store.Answer)) func() {
			s.call(c, []tenure.Request{req}, began, func(one []store.Answer, _ []int, err error) {
				if err != nil {
					one = store.Failed(1, err)
				}
				done(one[0])
			})
			return func() {}
		}, func(some []store.Answer, _ error) {
			for n, i := range skipped {
				answers[i] = some[n]
			}
			done(answers, nil)
		})
	})
	return func() {}
}

// call makes one round trip.
func (s *postgresServer) call(
	c *client, requests []tenure.Request, began time.Duration,
	done func([]store.Answer, []int, error),
) {
	s.w.ops += len(requests)
	l := s.conn(c)
	l.began = began
	s.w.carry(l, func(m message, reply func(func())) {
		t := &transaction{
			s: s, requests: requests, c: c, patient: len(requests) == 1, m: m, began: s.now(),
			answers: make([]store.Answer, len(requests)), changes: map[int]tenure.Record{},
			commit: func(answers []store.Answer, skipped []int) { reply(func() { done(answers, skipped, nil) }) },
			abort:  func(err error) { reply(func() { done(nil, nil, err) }) },
		}
		for i := range requests {
			t.order = append(t.order, i)
		}
		slices.SortStableFunc(t.order, func(i, j int) int { return cmp.Compare(requests[i].Key, requests[j].Key) })
		s.live = append(s.live, t)
		t.advance()
	}, func(err error) { done(nil, nil, err) })
}

// advance takes one row after the other, until it must wait for a lock.
func (t *transaction) advance() {
	s := t.s
	for ; t.next < len(t.order); t.next++ {
		i := t.order[t.next]
		req := t.requests[i]
		if by := s.locks[req.Key]; by != nil && by != t {
			if t.patient {
				s.w.cover("store", "waited for a row")
				s.waiting = append(s.waiting, t)
				s.w.at(s.w.now+lockWait, t.tire)
				return
			}
			s.w.cover("store", "skipped a locked row")
			if s.w.mutant.is("skipped-is-done") && req.Verb == tenure.Renew {
				rec := s.held(req.Key)
				rec.Deadline = s.now().Add(rec.TTL)
				t.answers[i] = store.Answer{Record: rec, Now: tenure.Time(s.now())}
				continue
			}
			t.skipped = append(t.skipped, i)
			continue
		}
		s.locks[req.Key] = t
		now := s.now() // after the lock
		if s.w.mutant.is("clock-before-lock") {
			now = t.began
		}
		rec := s.held(req.Key)
		for _, before := range t.order[:t.next] {
			if next, changed := t.changes[before]; changed && next.Key == req.Key {
				rec = next
			}
		}
		next, changed, err := s.w.law(rec, req, now)
		if err == nil && changed {
			t.changes[i] = next
		}
		t.answers[i] = store.Answer{
			Record: next, Now: tenure.Time(now), Err: err,
			Awaited: req.Verb == tenure.Release && s.awaited(req.Key, t.c),
		}
	}
	takes := between(s.w.luck[SlowCommit], 200*time.Microsecond, 3*time.Millisecond)
	if s.w.fault(SlowCommit) {
		takes += upTo(s.w.luck[SlowCommit], 6*time.Second)
	}
	s.w.at(s.w.now+takes, t.finish)
}

// finish commits the transaction.
func (t *transaction) finish() {
	s := t.s
	if t.over {
		return
	}
	t.over = true
	if s.w.fault(Aborted) {
		t.free()
		t.abort(errors.New("the transaction was rolled back"))
		return
	}
	for _, i := range t.order {
		if next, changed := t.changes[i]; changed {
			s.write(t.requests[i], kept{record: next}, t.m)
		}
	}
	t.free()
	t.commit(t.answers, t.skipped)
}

// tire ends a transaction that waited too long for a row.
func (t *transaction) tire() {
	if i := slices.Index(t.s.waiting, t); i >= 0 && !t.over {
		t.s.waiting = slices.Delete(t.s.waiting, i, i+1)
		t.over = true
		t.free()
		t.abort(errLocked)
	}
}

// free unlocks the rows, and lets one waiter go on for each.
func (t *transaction) free() {
	s := t.s
	var keys []string
	for _, key := range s.w.keys {
		if s.locks[key] == t {
			delete(s.locks, key)
			keys = append(keys, key)
		}
	}
	s.live = slices.DeleteFunc(s.live, func(other *transaction) bool { return other == t })
	for _, key := range keys {
		var queue []*transaction
		for _, other := range s.waiting {
			if other.requests[other.order[other.next]].Key == key {
				queue = append(queue, other)
			}
		}
		if len(queue) == 0 {
			continue
		}
		next := queue[s.rng.IntN(len(queue))]
		s.waiting = slices.DeleteFunc(s.waiting, func(other *transaction) bool { return other == next })
		s.w.at(s.w.now, func() {
			if !next.over {
				next.advance()
			}
		})
	}
}

// lockRow locks a row for a while, like a foreign transaction.
func (s *postgresServer) lockRow(key string, d time.Duration) bool {
	if s.locks[key] != nil {
		return false
	}
	t := &transaction{s: s}
	s.locks[key] = t
	s.live = append(s.live, t)
	s.w.at(s.w.now+d, func() {
		if !t.over {
			t.over = true
			t.free()
		}
	})
	return true
}

// halt rolls back all transactions. Their clients get no answer.
func (s *postgresServer) halt() {
	for _, t := range append(s.live, s.waiting...) {
		t.over = true
	}
	s.live, s.waiting = nil, nil
	clear(s.locks)
}
