package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

var storeEpoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var errLost = store.Unknown(errors.New("the answer was lost"))

// shelf is a store in memory: its records change by the law.
type shelf struct {
	records map[string]tenure.Record
	awaited bool // its answer to a release
}

func (s *shelf) apply(requests []tenure.Request, now clock.Instant) []store.Answer {
	answers := make([]store.Answer, len(requests))
	at := storeEpoch.Add(time.Duration(now))
	for i, req := range requests {
		rec, _, err := tenure.Apply(s.records[req.Key], req, at)
		if err == nil {
			s.records[req.Key] = rec
		}
		answers[i] = store.Answer{Record: s.records[req.Key], Now: at, Err: err}
		answers[i].Awaited = s.awaited && req.Verb == tenure.Release
	}
	return answers
}

// rig drives an engine by hand. Batches stay in flight until the test answers
// them.
type rig struct {
	t *testing.T
	e *Engine
	*shelf
	now    clock.Instant
	flying []*Batch
	ready  Ready // everything taken from the engine, and not yet looked at
	wake   clock.Instant
	idle   bool
	number *int // counts secrets
}

func newRig(t *testing.T) *rig {
	return newRigOn(t, &shelf{records: map[string]tenure.Record{}}, new(int), nil)
}

func newRigOn(t *testing.T, s *shelf, number *int, random func() float64) *rig {
	r := &rig{t: t, shelf: s, number: number}
	if random == nil {
		random = func() float64 { return 0.5 }
	}
	r.e = New(Options{
		Observed: true, Watches: true, CallTimeout: 5 * time.Second, Random: random,
		NewSecret: func() tenure.Secret {
			*number++
			return tenure.Secret(fmt.Sprintf("%032x", *number))
		},
	})
	return r
}

// take collects what the engine wants done.
func (r *rig) take() {
	got := r.e.Ready()
	r.flying = append(r.flying, got.Send...)
	r.ready.Replies = append(r.ready.Replies, got.Replies...)
	r.ready.Raise = append(r.ready.Raise, got.Raise...)
	r.ready.Look = append(r.ready.Look, got.Look...)
	r.ready.Watch = append(r.ready.Watch, got.Watch...)
	r.ready.Unwatch = append(r.ready.Unwatch, got.Unwatch...)
	r.ready.Over = append(r.ready.Over, got.Over...)
	r.ready.Events = append(r.ready.Events, got.Events...)
	r.wake, r.idle = got.Wake, got.Idle
}

// answer carries out the oldest batch in flight and gives the engine its
// answers.
func (r *rig) answer() {
	r.t.Helper()
	b := r.next()
	r.e.Answered(r.now, b, r.apply(b.Requests, r.now))
	r.take()
}

// lose answers the oldest batch as unknown. With carriedOut, the store has
// carried it out.
func (r *rig) lose(carriedOut bool) {
	r.t.Helper()
	b := r.next()
	if carriedOut {
		r.apply(b.Requests, r.now)
	}
	r.e.Answered(r.now, b, store.Failed(len(b.Requests), errLost))
	r.take()
}

// next removes the oldest batch in flight and returns it.
func (r *rig) next() *Batch {
	r.t.Helper()
	if len(r.flying) == 0 {
		r.t.Fatalf("at %s nothing is in flight", time.Duration(r.now))
	}
	b := r.flying[0]
	r.flying = r.flying[1:]
	return b
}

// settle answers batches until none is in flight.
func (r *rig) settle() {
	r.t.Helper()
	for range 1000 {
		if len(r.flying) == 0 {
			return
		}
		r.answer()
	}
	r.t.Fatal("the engine sends without end")
}

// pass lets time pass, and ticks whenever the engine wants it.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for range 100_000 {
		if r.wake > end {
			r.now = end
			return
		}
		r.now = max(r.now, r.wake)
		r.e.Tick(r.now)
		r.take()
	}
	r.t.Fatalf("at %s the engine wants to be woken at %s again and again", time.Duration(r.now), time.Duration(r.wake))
}

// live is pass with a store that answers at once.
func (r *rig) live(d time.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for range 1_000_000 {
		r.settle()
		if r.wake > end {
			r.now = end
			return
		}
		r.now = max(r.now, r.wake)
		r.e.Tick(r.now)
		r.take()
	}
	r.t.Fatal("the engine wants to be woken without end")
}

func (r *rig) begin(c *Call) *Call {
	r.e.Begin(r.now, c)
	r.take()
	return c
}

// acquire begins an acquire of a key by this client.
func (r *rig) acquire(key string, wait time.Duration) *Call {
	return r.begin(newAcquire(key, wait))
}

func newAcquire(key string, wait time.Duration) *Call {
	return &Call{
		Request: tenure.Request{Verb: tenure.Acquire, Key: key, Owner: "me", Instance: "here", TTL: time.Minute},
		Policy:  renewal.Policy{TTL: time.Minute, MaxFailures: 3}, WaitFor: wait,
	}
}

// granted acquires a key that is free.
func (r *rig) granted(key string) *Lease {
	r.t.Helper()
	c := r.acquire(key, 0)
	r.settle()
	return r.leaseOf(c)
}

func (r *rig) release(l *Lease) *Call {
	return r.begin(&Call{
		Request: tenure.Request{Verb: tenure.Release, Key: l.Key, Secret: l.Secret}, Lease: l, Bound: 2 * time.Second,
	})
}

// leaseOf returns the lease that a call was granted.
func (r *rig) leaseOf(c *Call) *Lease {
	r.t.Helper()
	if c.state != done || c.Reply.Err != nil || c.Reply.Lease == nil {
		r.t.Fatalf("the call for %q is in state %d with %+v, want a lease", c.Request.Key, c.state, c.Reply)
	}
	return c.Reply.Lease
}

// wantErr checks how a call ended.
func (r *rig) wantErr(c *Call, want error) {
	r.t.Helper()
	if c.state != done || !errors.Is(c.Reply.Err, want) {
		r.t.Fatalf("the call for %q is in state %d with error %v, want %v", c.Request.Key, c.state, c.Reply.Err, want)
	}
}

func (r *rig) wantOpen(c *Call) {
	r.t.Helper()
	if c.state != open {
		r.t.Fatalf("the call for %q has its reply already: %+v", c.Request.Key, c.Reply)
	}
}

// wantFlight checks the verbs of the oldest batch in flight.
func (r *rig) wantFlight(verbs ...tenure.Verb) *Batch {
	r.t.Helper()
	if len(r.flying) == 0 {
		r.t.Fatalf("at %s nothing is in flight, want %v", time.Duration(r.now), verbs)
	}
	var got []tenure.Verb
	for _, req := range r.flying[0].Requests {
		got = append(got, req.Verb)
	}
	if fmt.Sprint(got) != fmt.Sprint(verbs) {
		r.t.Fatalf("in flight are %v, want %v", got, verbs)
	}
	return r.flying[0]
}

func (r *rig) wantQuiet() {
	r.t.Helper()
	if len(r.flying) > 0 {
		r.t.Fatalf("%d batches are in flight, the first with %+v", len(r.flying), r.flying[0].Requests)
	}
}

// another lets another client hold a key.
func (r *rig) another(key string) tenure.Secret {
	r.t.Helper()
	*r.number++
	secret := tenure.Secret(fmt.Sprintf("%032x", *r.number))
	answers := r.apply([]tenure.Request{{
		Verb: tenure.Acquire, Key: key, Secret: secret, Owner: "another", Instance: "there", TTL: time.Minute,
	}}, r.now)
	if answers[0].Err != nil {
		r.t.Fatal(answers[0].Err)
	}
	return secret
}

// free releases a key that another client holds.
func (r *rig) free(key string, secret tenure.Secret) {
	r.t.Helper()
	if a := r.apply([]tenure.Request{{Verb: tenure.Release, Key: key, Secret: secret}}, r.now); a[0].Err != nil {
		r.t.Fatal(a[0].Err)
	}
}
