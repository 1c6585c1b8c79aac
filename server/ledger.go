package server

import (
	"context"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

const (
	// maxLedger is how many calls of the ledger, beside the batcher's, are in
	// flight at a time: each can bring many bytes into memory. One client of a
	// policy has at most half of them.
	maxLedger = 8
	// piece is how many items or effects one call of the ledger may bring.
	// Longer claims and takings are made of several.
	piece = 32
	// maxBytes is how many bytes of items or effects one answer carries, as a
	// rule.
	maxBytes = 4 << 20
)

// ledger is the ledger of a server, and how the server calls it.
type ledger struct {
	work.Ledger
	batcher *batcher[work.Request, work.Answer]
	lanes   lanes
	timeout time.Duration
	queues  queues
	claims  claims
	hints   hints
}

func newLedger(s *Server) *ledger {
	l := &ledger{Ledger: s.o.Ledger, timeout: s.o.CallTimeout}
	l.batcher = &batcher[work.Request, work.Answer]{
		send: l.apply, weigh: wire.Weigh, err: func(a *work.Answer) *error { return &a.Err },
		timeout: s.o.CallTimeout, called: s.called,
	}
	each := maxLedger
	if s.o.Access != nil {
		each /= 2
	}
	l.lanes = lanes{all: newSlots(maxLedger), each: each}
	return l
}

// apply makes one call of the ledger. It forgets at once what the answers do
// not carry: items can be long.
func (l *ledger) apply(ctx context.Context, requests []work.Request) []work.Answer {
	answers := l.Ledger.Apply(ctx, requests)
	for i := range answers {
		it := &answers[i].Item
		it.Payload, it.Checkpoint = nil, nil
		if !answers[i].Repeated {
			it.Result = nil
		}
		if i < len(requests) && !requests[i].Verb.ByHand() && requests[i].Verb != work.Requeue {
			it.Record.History = nil
		}
	}
	return answers
}

// enter takes a turn to call the ledger, until leave is called. It waits no
// longer than a call may take, nor longer than the client.
func (l *ledger) enter(c *call) (leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(c.Context(), l.timeout, errBusy)
	defer cancel()
	return l.lanes.enter(ctx, c.id.Name)
}

// lanes bounds how much is done at a time, in all and for each client. Clients
// wait for their turn. A client with many calls waits for its own first, so it
// does not stand in the way of others.
type lanes struct {
	all  slots
	each int // for one client

	mu   sync.Mutex
	lane map[string]*lane // guarded by mu
}

// lane has the slots of one client, and counts the calls that use it.
type lane struct {
	slots slots
	calls int
}

// enter waits for a turn. Its error is that of ctx, or the cause of its end.
func (l *lanes) enter(ctx context.Context, name string) (leave func(), err error) {
	l.mu.Lock()
	if l.lane == nil {
		l.lane = map[string]*lane{}
	}
	mine := l.lane[name]
	if mine == nil {
		mine = &lane{slots: newSlots(l.each)}
		l.lane[name] = mine
	}
	mine.calls++
	l.mu.Unlock()
	out := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if mine.calls--; mine.calls == 0 {
			delete(l.lane, name)
		}
	}
	if err := mine.slots.wait(ctx); err != nil {
		out()
		return nil, err
	}
	if err := l.all.wait(ctx); err != nil {
		mine.slots.leave()
		out()
		return nil, err
	}
	return func() { l.all.leave(); mine.slots.leave(); out() }, nil
}

// wait waits for a slot.
func (s slots) wait(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case s <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	if cause := context.Cause(ctx); cause == errBusy { //nolint:errorlint // it is this very value
		return cause
	}
	return store.Unknown(wait.Ended(ctx))
}

// maxQueues is how many queues of items are remembered, twice.
const maxQueues = 32 << 10

// queues remembers the queues of items that were asked about lately.
type queues struct {
	mu       sync.Mutex
	now, old map[work.ID]string // guarded by mu
}

// keep remembers the queue of an item, unless there is no item.
func (q *queues) keep(it work.Item) {
	if it.IsZero() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.now) >= maxQueues {
		q.now, q.old = nil, q.now
	}
	if q.now == nil {
		q.now = map[work.ID]string{}
	}
	q.now[it.ID] = it.Queue
}

// of returns the queue of an item, or "" if it is not remembered.
func (q *queues) of(id work.ID) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue, known := q.now[id]; known {
		return queue
	}
	return q.old[id]
}
