package worktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

const (
	// long is a time that does not run out during a check, unless the clock is
	// advanced.
	long = time.Hour
	// brief is a time short enough to wait for. No check needs a brief lease to
	// be still alive.
	brief = 30 * time.Millisecond
)

// trial is one check under way on one ledger.
type trial struct {
	testing.TB
	Harness
	// ledger is the first handle.
	ledger work.Ledger
	opened []work.Ledger
	ctx    context.Context
	rand   *rand.Rand
	starts []start // those that rules count
}

func newTrial(tb testing.TB, h Harness) *trial {
	tb.Helper()
	if h.Open == nil {
		tb.Fatalf("worktest: the harness lacks Open")
	}
	if h.Patience <= 0 {
		h.Patience = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(tb.Context(), max(10*h.Patience, time.Minute))
	tb.Cleanup(cancel)
	t := &trial{TB: tb, Harness: h, ctx: ctx, rand: suite.Random(tb, "WORKTEST_SEED")}
	tb.Cleanup(func() {
		for _, l := range t.opened {
			if err := l.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
	t.ledger = t.open()
	return t
}

// open opens one more handle on the ledger.
func (t *trial) open() work.Ledger {
	t.Helper()
	l := t.Open(t.TB)
	t.opened = append(t.opened, l)
	return l
}

// many returns how often to repeat something: full, or slow on a slow ledger or
// in a short test.
func (t *trial) many(full, slow int) int {
	if t.Slow || testing.Short() {
		return min(full, slow)
	}
	return full
}

// pick returns one of its arguments at random.
func pick[T any](t *trial, of ...T) T { return of[t.rand.IntN(len(of))] }

// apply sends requests and checks that each has one answer.
func (t *trial) apply(l work.Operations, requests ...work.Request) []work.Answer {
	t.Helper()
	answers := l.Apply(t.ctx, requests)
	if len(answers) != len(requests) {
		t.Fatalf("%d requests got %d answers; every request gets exactly one, in order", len(requests), len(answers))
	}
	return answers
}

// get reads an item. It returns the zero Item if there is none.
func (t *trial) get(id work.ID) work.Item {
	t.Helper()
	it, err := t.ledger.Get(t.ctx, id)
	if err != nil && !errors.Is(err, work.ErrNotFound) {
		t.Fatalf("Get(%s): %v", id, err)
	}
	return it
}

// effectsOf reads the effects of an item.
func (t *trial) effectsOf(id work.ID) []work.Effect {
	t.Helper()
	return collect(t, "Effects", t.ledger.Effects(t.ctx, work.EffectQuery{Item: id}))
}

// refusalsOf reads the refusals of an item.
func (t *trial) refusalsOf(id work.ID) []work.Refusal {
	t.Helper()
	return collect(t, "Refusals", t.ledger.Refusals(t.ctx, work.RefusalQuery{Item: id}))
}

// collect reads a sequence to its end.
func collect[T any](t *trial, what string, seq func(func(T, error) bool)) []T {
	t.Helper()
	var all []T
	for v, err := range seq {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		all = append(all, v)
	}
	return all
}

// now reads the ledger's clock.
func (t *trial) now() time.Time {
	t.Helper()
	now, err := t.ledger.Now(t.ctx)
	if err != nil {
		t.Fatalf("Now: %v", err)
	}
	return now
}

// pass moves the ledger's clock to a moment or, if it cannot, waits for it.
func (t *trial) pass(until time.Time) {
	t.Helper()
	suite.Pass(t.ctx, t, until, t.now, t.Advance)
}

// lapsing returns a TTL for a lease that shall run out. It is short if the
// check must wait for that.
func (t *trial) lapsing() time.Duration {
	if t.Advance == nil {
		return brief
	}
	return long
}

// held is an item and the secret that claimed it.
type held struct {
	work.Item
	secret tenure.Secret
}

// by returns a request of the owner.
func (h held) by(verb work.Verb) work.Request {
	return work.Request{Verb: verb, ID: h.ID, Token: h.Record.Token, Secret: h.secret}
}

// added returns a request for a new item in a queue.
func added(queue string) work.Request {
	return work.Request{Verb: work.Add, ID: work.NewID(), Queue: queue, Payload: []byte("payload of " + queue)}
}

// hand returns an operator's request.
func hand(verb work.Verb, id work.ID) work.Request {
	req := work.Request{Verb: verb, ID: id, Secret: tenure.NewSecret(), Actor: "olga", Note: "because"}
	if verb == work.Reassign {
		req.Owner = "cleo"
	}
	return req
}

// claimOf returns a claim of one item of a queue.
func claimOf(queue string) work.Claim {
	return work.Claim{
		Queues: []string{queue}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", Instance: "run 1",
		TTL: long,
	}
}

// running adds an item to a queue and claims it.
func (t *trial) running(queue string) held { t.Helper(); return t.runningFor(queue, long) }

func (t *trial) runningFor(queue string, ttl time.Duration) held {
	t.Helper()
	t.must(added(queue))
	return t.claimed(queue, ttl)
}

// claimed claims the only item in a queue.
func (t *trial) claimed(queue string, ttl time.Duration) held {
	t.Helper()
	c := claimOf(queue)
	c.TTL = ttl
	got := t.claim(c)
	if len(got) != 1 {
		t.Fatalf("a claim of the ready item in %q got %d items", queue, len(got))
	}
	return held{got[0], c.Secret}
}

// lapsed adds and claims an item, and lets its lease run out.
func (t *trial) lapsed(queue string) held {
	t.Helper()
	h := t.runningFor(queue, t.lapsing())
	t.pass(h.Record.Deadline)
	return h
}

// requeue returns the reconciler's request for an item that it has read.
func requeue(it work.Item) work.Request {
	return work.Request{
		Verb: work.Requeue, ID: it.ID, Token: it.Record.Token, Secret: tenure.NewSecret(),
		Owner: "reconciler",
	}
}

// rescue requeues a lapsed item, and makes it ready at once.
func (t *trial) rescue(it work.Item) {
	t.Helper()
	t.must(requeue(it))
	t.must(hand(work.RunNow, it.ID))
}

// dispatcher returns the stamp of the n-th dispatcher.
func dispatcher(n int) fence.Stamp {
	return fence.Stamp{Key: "work/dispatch", Token: fence.Token(1000 + n), Grant: tenure.NewSecret().Grant()}
}
