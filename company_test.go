package croft

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestWhatGoesBesideABatchHasNothingToDoWithIt: whatever is asked for, in whatever order, and however long it takes, two batches are under way only if both are of acquires and releases that are sent for the first time, they are about
// different keys, the second is as large, and nothing hangs. What is about one key arrives in its order, what is given together goes together, and everything is answered once.
func TestWhatGoesBesideABatchHasNothingToDoWithIt(t *testing.T) {
	together := 0
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				log := &flightLog{start: time.Now(), random: rand.New(&locked{src: rand.NewPCG(seed, 1)}), order: map[string][]tenure.Secret{}}
				log.fill(r)
				together += log.check(r)
			})
		})
	}
	if together == 0 {
		t.Error("no two batches were ever under way together")
	}
}

// logged is one call of the store.
type logged struct {
	requests    []tenure.Request
	at          time.Duration
	takes, left int // numbers of the moments at which it began and ended
}

// flightLog is a store that notes when which calls were under way. The owner of a request tells its lane.
type flightLog struct {
	store.Store
	start  time.Time
	random *rand.Rand

	mu      sync.Mutex
	moment  int
	flights []*logged
	pairs   [][2]tenure.Secret         // what was given together
	order   map[string][]tenure.Secret // what was asked about each key for the first time
}

func (s *flightLog) Pipelines() bool { return true }

func (s *flightLog) Apply(ctx context.Context, batch []tenure.Request) []store.Answer {
	f := &logged{requests: slices.Clone(batch), at: time.Since(s.start)}
	s.mu.Lock()
	s.moment++
	f.takes = s.moment
	s.flights = append(s.flights, f)
	s.mu.Unlock()
	takes := s.random.IntN(30)
	if s.random.IntN(20) == 0 {
		takes = 900 + s.random.IntN(6000)
	}
	select {
	case <-time.After(time.Duration(takes) * time.Millisecond):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moment++
	f.left = s.moment
	return store.Failed(len(batch), errDown)
}

// fill asks for this and that.
func (s *flightLog) fill(r *rig) {
	c := r.client(s, nil)
	var all sync.WaitGroup
	pick := func(verbs ...tenure.Verb) tenure.Verb { return verbs[s.random.IntN(len(verbs))] }
	ask := func(verb tenure.Verb, key string, at lane) *submission {
		all.Add(1)
		req := tenure.Request{Verb: verb, Key: key, Secret: tenure.NewSecret(), Owner: fmt.Sprint(at)}
		if at == fresh {
			s.order[key] = append(s.order[key], req.Secret)
		}
		return &submission{requests: []tenure.Request{req}, lane: at, to: told(func([]store.Answer, clock.Instant) { all.Done() })}
	}
	for n := range 400 {
		if s.random.IntN(3) > 0 {
			time.Sleep(time.Duration(s.random.IntN(10)) * time.Millisecond)
		}
		key := fmt.Sprint("jobs/", s.random.IntN(40))
		switch s.random.IntN(30) {
		case 0:
			c.calls.submit(ask(pick(tenure.Renew, tenure.Report, tenure.Revoke), key, fresh))
		case 1:
			c.calls.submit(ask(pick(tenure.Acquire, tenure.Release, tenure.Renew), key, lane(s.random.IntN(3))))
		case 2:
			both := ask(tenure.Release, key, fresh)
			both.next = ask(tenure.Acquire, key, fresh)
			s.pairs = append(s.pairs, [2]tenure.Secret{both.requests[0].Secret, both.next.requests[0].Secret})
			c.calls.submit(both)
		case 3:
			carried := ask(tenure.Acquire, fmt.Sprint(key, "/", n), fresh)
			ctx, cancel := context.WithTimeout(r.Context(), time.Duration(s.random.IntN(20))*time.Millisecond)
			all.Go(func() { defer cancel(); c.calls.carry(ctx, carried) })
		default:
			c.calls.submit(ask(pick(tenure.Acquire, tenure.Release), key, fresh))
		}
	}
	all.Wait()
}

func (f *logged) size() int { return len(f.requests) }

func (f *logged) has(secret tenure.Secret) bool {
	return slices.ContainsFunc(f.requests, func(req tenure.Request) bool { return req.Secret == secret })
}

// check looks at every call that began while others were under way, and returns how many there were of those that went beside one that does not hang.
func (s *flightLog) check(r *rig) (together int) {
	r.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flights {
		var young []*logged
		old := 0
		for _, g := range s.flights {
			switch {
			case g.takes >= f.takes || g.left < f.takes:
			case f.at-g.at < patientFor:
				young = append(young, g)
			default:
				old++
			}
		}
		if len(young) == 0 {
			continue
		}
		together++
		g := young[0]
		if len(young) > 1 || old > 0 {
			r.Errorf("at %s a batch went beside %d, and %d that hang", f.at, len(young), old)
		}
		if f.size() < g.size() && f.at != g.at { // else there is no telling which was first
			r.Errorf("at %s a batch of %d went beside one of %d", f.at, f.size(), g.size())
		}
		for _, req := range slices.Concat(f.requests, g.requests) {
			if req.Verb != tenure.Acquire && req.Verb != tenure.Release || req.Owner != fmt.Sprint(fresh) {
				r.Errorf("at %s two batches were under way, and a %s in lane %s in one of them", f.at, req.Verb, req.Owner)
			}
		}
		for _, req := range f.requests {
			if slices.ContainsFunc(g.requests, func(other tenure.Request) bool { return other.Key == req.Key }) {
				r.Errorf("at %s two batches were under way with %s", f.at, req.Key)
			}
		}
	}
	for _, pair := range s.pairs {
		if !slices.ContainsFunc(s.flights, func(f *logged) bool { return f.has(pair[0]) && f.has(pair[1]) }) {
			r.Error("what was given together did not go together")
		}
	}
	for _, f := range s.flights {
		for _, req := range f.requests {
			if asked := s.order[req.Key]; req.Owner != fmt.Sprint(fresh) {
				continue
			} else if len(asked) == 0 || asked[0] != req.Secret {
				r.Errorf("at %s a %s of %s arrived before others that came before it, or twice", f.at, req.Verb, req.Key)
			} else {
				s.order[req.Key] = asked[1:]
			}
		}
	}
	return together
}
