package sim

import (
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// servedStore is a store like etcd behind two of croft's servers. A client's
// call goes to either of them.
type servedStore struct {
	*redisServer
	servers [2]*croftServer
	rng     *rand.Rand
}

// croftServer carries the requests of clients to the store. As in package
// server, requests of different clients that arrive while it waits for the
// store go there in one call. A call that hangs does not hold up the next.
type croftServer struct {
	s       *servedStore
	life    int // how often it has died
	down    time.Duration
	waiting []errand
	busy    bool // it waits for an answer of the store
}

// errand is one client's call at a server.
type errand struct {
	requests []tenure.Request
	client   *client
	m        message
	began    time.Duration // when the client made the call
	answer   func([]store.Answer)
}

// overtakeAfter is when a server sends the next call beside one that hangs.
const overtakeAfter = 100 * time.Millisecond

func newServedStore(w *world) *servedStore {
	s := &servedStore{redisServer: newEtcdServer(w), rng: w.stream("servers")}
	for i := range s.servers {
		s.servers[i] = &croftServer{s: s}
	}
	return s
}

// halt kills both servers.
func (s *servedStore) halt() {
	for _, each := range s.servers {
		each.die()
	}
}

func (s *servedStore) apply(c *client, requests []tenure.Request, done func([]store.Answer, error)) func() {
	s.w.ops += len(requests)
	to, began := s.servers[s.rng.IntN(len(s.servers))], s.w.now
	link := s.conn(c)
	link.up = func() bool { return s.up() && s.w.now >= to.down }
	s.w.carry(link, func(m message, reply func(func())) {
		to.waiting = append(to.waiting, errand{requests, c, m, began, func(answers []store.Answer) {
			reply(func() { done(answers, nil) })
		}})
		to.send()
	}, func(err error) { done(nil, err) })
	return func() {}
}

// send makes one call of the store with all that waits.
func (r *croftServer) send() {
	w := r.s.w
	if r.busy || len(r.waiting) == 0 {
		return
	}
	together, life := r.waiting, r.life
	r.waiting, r.busy = nil, true
	if len(together) > 1 {
		w.cover("server", "calls of clients together")
	}
	there := between(r.s.rng, time.Millisecond, 5*time.Millisecond)
	back, slow := between(r.s.rng, time.Millisecond, 5*time.Millisecond), upTo(r.s.rng, 3*time.Second)
	if w.fault(SlowCommit) {
		there += slow
	}
	if w.fault(ServerKilled) {
		w.at(w.now+upTo(r.s.rng, there+back), func() {
			if r.life == life {
				w.say("server", "one of croft's servers is killed")
				r.die()
			}
		})
	}
	next := func() {
		if r.life == life {
			r.busy = false
			r.send()
		}
	}
	w.at(w.now+overtakeAfter, next)
	w.at(w.now+there, func() {
		answers := make([][]store.Answer, len(together))
		for i, e := range together {
			// Nobody is responsible any more if the call took too long.
			e.m.stray = e.m.stray || w.now-e.began >= callBound
			answers[i] = r.s.carryOut(e.client, e.requests, e.m)
		}
		w.at(w.now+back, func() {
			if r.life != life {
				return // the answers reach nobody
			}
			if w.mutant.is("mixes-answers") {
				answers = append(answers[1:], answers[0])
			}
			for i, e := range together {
				e.answer(answers[i])
			}
			next()
		})
	})
}

// die drops what waits at the server. Calls on their way reach the store, and
// nobody hears of them.
func (r *croftServer) die() {
	r.life++
	r.waiting, r.busy = nil, false
	r.down = r.s.w.now + upTo(r.s.rng, 2*time.Second)
}
