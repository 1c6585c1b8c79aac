package croft

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// rig is a store in memory on the time of a synctest bubble, with clients whose
// clocks can be suspended. synctest checks in every test that no goroutine is
// left at the end.
type rig struct {
	*testing.T
	st *mem.Store
}

// inBubble runs a test in a synctest bubble.
func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(&rig{T: t, st: mem.New(nil)}) })
}

// client makes a client of a store, by default the rig's own. It is closed with
// the test.
func (r *rig) client(st store.Store, o *Options) *Client {
	c, _ := r.sleeper(st, o)
	return c
}

// sleeper is client, and also returns the clock, which can be suspended.
func (r *rig) sleeper(st store.Store, o *Options) (*Client, *clock.Process) {
	r.Helper()
	if st == nil {
		st = r.st
	}
	clk := clock.NewProcess()
	c := newClient(st, o, clk, rand.New(&locked{src: rand.NewPCG(1, 2)}).Float64)
	r.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, store.ErrUnknown) {
			r.Errorf("Close: %v", err)
		}
	})
	return c, clk
}

// acquire takes a lease. The test fails if it cannot.
func (r *rig) acquire(c *Client, key string, o *LeaseOptions) *Lease {
	r.Helper()
	l, err := c.Acquire(r.Context(), key, o)
	if err != nil {
		r.Fatalf("acquire %s: %v", key, err)
	}
	return l
}

// record returns the store's record of a key.
func (r *rig) record(key string) tenure.Record {
	r.Helper()
	rec, err := r.st.Get(r.Context(), key)
	if err != nil {
		r.Fatal(err)
	}
	return rec
}

// wantLost waits for the lease's end and checks its cause.
func (r *rig) wantLost(l *Lease, loss Loss) {
	r.Helper()
	<-l.Done()
	var lost *LostError
	if cause := context.Cause(l.Context()); !errors.As(cause, &lost) || lost.Loss != loss || !errors.Is(cause, ErrLost) {
		r.Fatalf("the context ended with %v, want a loss as %q", cause, loss)
	}
	if lost.Key != l.Key() || lost.Token != l.Token() {
		r.Errorf("the loss is of %q, token %d", lost.Key, lost.Token)
	}
	if err := l.Err(); !errors.Is(err, ErrLost) {
		r.Errorf("Err is %v", err)
	}
}

// wantAfter checks how much of the bubble's time has passed since start.
func wantAfter(t testing.TB, start time.Time, least, most time.Duration) {
	t.Helper()
	if passed := time.Since(start); passed < least || passed > most {
		t.Errorf("it came after %s, want between %s and %s", passed, least, most)
	}
}

// tap is a store that counts its requests and can be made to fail. It gives no
// hints.
type tap struct {
	store.Store
	mu    sync.Mutex
	calls [][]tenure.Request
	// on is called for every batch, if set. If it returns nil, the real store
	// answers.
	on func(ctx context.Context, batch []tenure.Request) []store.Answer
}

func (s *tap) Apply(ctx context.Context, batch []tenure.Request) []store.Answer {
	s.mu.Lock()
	s.calls = append(s.calls, slices.Clone(batch))
	on := s.on
	s.mu.Unlock()
	if on != nil {
		if answers := on(ctx, batch); answers != nil {
			return answers
		}
	}
	return s.Store.Apply(ctx, batch)
}

// set changes the behaviour from the next call on.
func (s *tap) set(on func(ctx context.Context, batch []tenure.Request) []store.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
}

// count returns how many requests with a verb the store got, and in how many
// calls.
func (s *tap) count(verb tenure.Verb) (requests, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, batch := range s.calls {
		n := 0
		for _, req := range batch {
			if req.Verb == verb {
				n++
			}
		}
		requests += n
		calls += min(n, 1)
	}
	return requests, calls
}

// all returns every call so far.
func (s *tap) all() [][]tenure.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *tap) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// The faults that a tap can have.

var errDown = errors.New("connection refused")

func down(_ context.Context, batch []tenure.Request) []store.Answer {
	return store.Failed(len(batch), errDown)
}

func hang(ctx context.Context, batch []tenure.Request) []store.Answer {
	<-ctx.Done()
	return store.Failed(len(batch), ctx.Err())
}

// only applies a fault to batches with this verb.
func only(verb tenure.Verb, fault func(context.Context, []tenure.Request) []store.Answer) func(context.Context, []tenure.Request) []store.Answer {
	return func(ctx context.Context, batch []tenure.Request) []store.Answer {
		if slices.ContainsFunc(batch, func(req tenure.Request) bool { return req.Verb == verb }) {
			return fault(ctx, batch)
		}
		return nil
	}
}

// events collects the events of a client.
type events struct {
	mu   sync.Mutex
	seen []Event
}

func (e *events) observe(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, ev)
}

// of returns the events of a kind.
func (e *events) of(kind EventKind) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []Event
	for _, ev := range e.seen {
		if ev.Kind == kind {
			found = append(found, ev)
		}
	}
	return found
}

// locked makes a source of random numbers safe for concurrent use.
type locked struct {
	mu  sync.Mutex
	src rand.Source
}

func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src.Uint64()
}

// Numbers of the engine and the clock, repeated here because they are promises.
const (
	maxSleep     = time.Second // between two looks of the clock's alarm
	patientFor   = time.Second
	mostInFlight = 4
	mostInBatch  = 1000
	mostRenewals = 800
	mostPassed   = 16
)

// wantNothingLeft checks that a client has nothing to do and remembers nothing.
func wantNothingLeft(t testing.TB, c *Client) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if load := c.engine.Load(); load != (engine.Load{}) {
		t.Errorf("left in a client: %+v", load)
	}
}
