package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// When picks the requests that have a fault. A nil When picks all.
type When func(req tenure.Request) bool

func (w When) picks(req tenure.Request) bool { return w == nil || w(req) }

// First picks the first n requests that w picks. It is safe for concurrent use.
func First(n int, w When) When {
	var mu sync.Mutex
	return func(req tenure.Request) bool {
		if !w.picks(req) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		n--
		return n >= 0
	}
}

// ErrFault is matched by the answer to every request that has a fault. The
// answer also matches [store.ErrUnknown], like a fault of a real network.
var ErrFault = errors.New("a fault of the network")

func lost(what string) store.Answer {
	return store.Answer{Err: store.Unknown(fmt.Errorf("%w: %s", ErrFault, what))}
}

// DropReply wraps st in a network that carries out the picked requests and
// loses their answers.
func DropReply(st store.Store, w When) store.Store {
	return &dropReply{behind{st}, w}
}

type dropReply struct {
	behind
	when When
}

func (s *dropReply) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	picked := pick(requests, s.when)
	answers := s.Store.Apply(ctx, requests)
	for i := range answers {
		if i < len(picked) && picked[i] {
			answers[i] = lost("the request was delivered, the reply was not")
		}
	}
	return answers
}

// DropRequest wraps st in a network that loses the picked requests.
func DropRequest(st store.Store, w When) store.Store {
	return &dropRequest{behind{st}, w}
}

type dropRequest struct {
	behind
	when When
}

func (s *dropRequest) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	return s.others(ctx, requests, pick(requests, s.when), "the request was not delivered")
}

// DeliverTwice wraps st in a network that delivers the picked requests twice:
// once with their batch, and once more after it. The caller gets the first
// answer.
func DeliverTwice(st store.Store, w When) store.Store {
	return &deliverTwice{behind{st}, w}
}

type deliverTwice struct {
	behind
	when When
}

func (s *deliverTwice) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	var again []tenure.Request
	for i, yes := range pick(requests, s.when) {
		if yes {
			again = append(again, requests[i])
		}
	}
	answers := s.Store.Apply(ctx, requests)
	if len(again) > 0 {
		s.Store.Apply(ctx, again)
	}
	return answers
}

// DeliverLate wraps st in a network that keeps back the picked requests. It
// answers them at once as unknown, as if the caller's time were over. It
// delivers them when Deliver is called.
func DeliverLate(st store.Store, w When) *Late {
	return &Late{behind: behind{st}, when: w}
}

// Late is a store that gets some requests late.
type Late struct {
	behind
	when When

	mu      sync.Mutex
	pending []tenure.Request
}

// Apply carries out the requests that are not kept back.
func (s *Late) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	picked := pick(requests, s.when)
	s.mu.Lock()
	for i, yes := range picked {
		if yes {
			s.pending = append(s.pending, requests[i])
		}
	}
	s.mu.Unlock()
	return s.others(ctx, requests, picked, "the request is late")
}

// Deliver sends the requests that were kept back, in their order. It returns
// their answers, for which no caller waits any more.
func (s *Late) Deliver(ctx context.Context) []store.Answer {
	s.mu.Lock()
	late := s.pending
	s.pending = nil
	s.mu.Unlock()
	if len(late) == 0 {
		return nil
	}
	return s.Store.Apply(ctx, late)
}

// Pending returns the requests that are kept back.
func (s *Late) Pending() []tenure.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pending)
}

// behind is the store behind a network. It passes on the optional methods of
// the store.
type behind struct{ store.Store }

// others carries out the requests that are not picked, and answers the picked
// ones as lost.
func (s behind) others(ctx context.Context, requests []tenure.Request, picked []bool, what string) []store.Answer {
	answers := make([]store.Answer, len(requests))
	var rest []tenure.Request
	var index []int
	for i, yes := range picked {
		if yes {
			answers[i] = lost(what)
			continue
		}
		rest, index = append(rest, requests[i]), append(index, i)
	}
	if len(rest) == 0 {
		return answers
	}
	known := s.Store.Apply(ctx, rest)
	if len(known) != len(rest) {
		return known // a flaw of the store, which must not be hidden
	}
	for n, a := range known {
		answers[index[n]] = a
	}
	return answers
}

// Watch watches the store behind the network.
func (s behind) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if w, ok := s.Store.(store.Watcher); ok {
		return w.Watch(ctx, key)
	}
	return nil, fmt.Errorf("this store cannot wake waiters: %w", errors.ErrUnsupported)
}

// Acts announces the acts of the store behind the network.
func (s behind) Acts(ctx context.Context) (<-chan string, error) {
	if a, ok := s.Store.(store.Announcer); ok {
		return a.Acts(ctx)
	}
	return nil, fmt.Errorf("this store tells of no acts: %w", errors.ErrUnsupported)
}

// Sweep sweeps the store behind the network.
func (s behind) Sweep(ctx context.Context) (int, error) {
	if w, ok := s.Store.(store.Sweeper); ok {
		return w.Sweep(ctx)
	}
	return 0, fmt.Errorf("this store forgets by itself: %w", errors.ErrUnsupported)
}

// Examine examines the store behind the network.
func (s behind) Examine(ctx context.Context) ([]store.Finding, error) {
	if e, ok := s.Store.(store.Examiner); ok {
		return e.Examine(ctx)
	}
	return nil, fmt.Errorf("this store cannot examine itself: %w", errors.ErrUnsupported)
}

// pick asks w once for every request, because w may count.
func pick(requests []tenure.Request, w When) []bool {
	picked := make([]bool, len(requests))
	for i, req := range requests {
		picked[i] = w.picks(req)
	}
	return picked
}
