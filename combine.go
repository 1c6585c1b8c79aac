package croft

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// patientFor is how long requests wait for the batch before theirs. A batch that takes longer is overtaken.
	patientFor = time.Second
	// mostInFlight bounds the batches on their way, hanging ones included.
	mostInFlight = 4
	// mostInBatch bounds the requests in one, so that a slow store answers within CallTimeout. Renewals fill no more than mostRenewals of it: however many
	// wait, other requests go along with the next of them.
	mostInBatch  = 1000
	mostRenewals = 800
	// promptly is how soon a store answers that a caller may wait for without watching anything else. Beyond it, what a goroutine costs is nothing.
	promptly = 10 * time.Millisecond
)

// combiner makes few calls of the store out of many requests: while one batch is on its way, the requests of other goroutines gather for
// the next. Nothing is delayed when idle, and nothing waits on a timer.
type combiner struct {
	st      store.Store
	life    context.Context
	timeout time.Duration
	clk     clock.Clock
	observe func(Event) // nil if nobody listens

	mu         sync.Mutex
	waiting    []*submission
	flying     int           // batches on their way,
	hanging    int           // those of them that have been for longer than patientFor
	delivering int           // batches whose answers are being given out
	prompt     bool          // the last batch took no longer than promptly
	landed     chan struct{} // closed when nothing is on its way or given out, if somebody waits for it
}

// lane keeps apart what should not be in one call.
type lane int

const (
	fresh lane = iota // sent for the first time
	again             // not answered the last time: whatever it is that hangs shall not take others with it
	alone             // in a call of its own
)

// submission is what one caller wants carried out: it is not divided between batches, and holds at most mostInBatch requests.
type submission struct {
	requests []tenure.Request
	lane     lane
	// done is called once with an answer per request, and the instant just before they were sent. It must not block.
	done func(answers []store.Answer, sent clock.Instant)
}

// submit takes requests and returns. Their context is the combiner's own: a caller that goes away leaves its requests on their way. Submissions that are given
// together, and are in one lane, go together.
func (b *combiner) submit(together ...*submission) {
	b.mu.Lock()
	b.waiting = append(b.waiting, together...)
	batch := b.take()
	b.mu.Unlock()
	if batch != nil {
		go b.fly(batch)
	}
}

// carry is submit for a caller that only waits for the answer. If nothing else is on its way and the store has been prompt, it makes the call itself, and done is
// called before carry returns, at the latest soon after ctx ends or patientFor has passed: handing the call to a goroutine and the answer back would take as long again as many a store.
func (b *combiner) carry(ctx context.Context, together ...*submission) {
	b.mu.Lock()
	if !b.prompt || b.flying > 0 || len(b.waiting) > 0 || ctx.Err() != nil {
		b.mu.Unlock()
		b.submit(together...)
		return
	}
	b.flying++
	b.mu.Unlock()

	bounded, cancel := context.WithTimeout(ctx, min(patientFor, b.timeout))
	defer cancel()
	f, next := b.flight(bounded, together)
	if next != nil {
		go b.fly(next)
	}
	b.deliver(f)
	// Giving back is worth another message. Anything else that the caller has left might come when it, or others, have gone on to something else.
	if f.requests[0].Verb == tenure.Release && !known(f.answers[0].Err) && ctx.Err() != nil {
		b.submit(&submission{requests: together[0].requests, lane: again, done: func([]store.Answer, clock.Instant) {}})
	}
}

// take returns the batch that may go now, or nil. The caller holds the mutex.
func (b *combiner) take() []*submission {
	if len(b.waiting) == 0 || b.flying > b.hanging || b.flying >= mostInFlight {
		return nil
	}
	b.flying++
	first := b.waiting[0]
	if first.lane == alone {
		b.waiting = b.waiting[1:]
		return []*submission{first}
	}
	var batch, rest []*submission
	room := mostInBatch
	for _, s := range b.waiting {
		if s.lane == first.lane && len(s.requests) <= room {
			batch = append(batch, s)
			room -= len(s.requests)
		} else {
			rest = append(rest, s)
		}
	}
	b.waiting = rest
	return batch
}

// fly carries out a batch, and then those that have gathered meanwhile. The next is sent before the answers are given out, so that the store has something to do.
func (b *combiner) fly(batch []*submission) {
	for batch != nil {
		ctx, cancel := context.WithTimeout(b.life, b.timeout)
		f, next := b.flight(ctx, batch)
		cancel()
		if next != nil {
			go b.deliver(f)
		} else {
			b.deliver(f)
		}
		batch = next
	}
}

// flown is a batch with its answers.
type flown struct {
	batch    []*submission
	requests []tenure.Request
	answers  []store.Answer
	sent     clock.Instant
	took     time.Duration
}

// flight makes one call, lets others overtake it if it hangs, and returns the batch that may go next.
func (b *combiner) flight(ctx context.Context, batch []*submission) (f flown, next []*submission) {
	var call struct{ landed, hung bool } // under the mutex
	overtake := time.AfterFunc(patientFor, func() {
		b.mu.Lock()
		var next []*submission
		if !call.landed {
			call.hung = true
			b.hanging++
			next = b.take()
		}
		b.mu.Unlock()
		if next != nil {
			go b.fly(next)
		}
	})
	defer func() {
		overtake.Stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		call.landed = true
		if call.hung {
			b.hanging--
		}
		b.flying--
		next = b.take()
		if f.answers == nil { // the store panicked: if that was on the goroutine of a caller who recovers, others go on
			go b.fly(next)
			b.settle()
			return
		}
		b.delivering++
		b.prompt = f.took <= promptly
	}()
	return b.call(ctx, batch), nil
}

// deliver gives the answers out.
func (b *combiner) deliver(f flown) {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.delivering--
		b.settle()
	}()
	rest := f.answers
	for _, s := range f.batch {
		n := len(s.requests)
		s.done(rest[:n:n], f.sent)
		rest = rest[n:]
	}
	if b.observe != nil {
		b.report(f)
	}
}

// close returns a channel that is closed when nothing is on its way any more. It is for when no more is submitted and life has ended.
func (b *combiner) close() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	landed := make(chan struct{})
	b.landed = landed
	b.settle()
	return landed
}

// settle tells close when all has landed. The caller holds the mutex.
func (b *combiner) settle() {
	if b.flying == 0 && b.delivering == 0 && b.landed != nil {
		close(b.landed)
		b.landed = nil
	}
}

// call is one call of the store.
func (b *combiner) call(ctx context.Context, batch []*submission) flown {
	f := flown{batch: batch, requests: batch[0].requests}
	if len(batch) > 1 {
		n := 0
		for _, s := range batch {
			n += len(s.requests)
		}
		f.requests = make([]tenure.Request, 0, n)
		for _, s := range batch {
			f.requests = append(f.requests, s.requests...)
		}
	}
	f.sent = b.clk.Now()
	f.answers = b.st.Apply(ctx, f.requests)
	f.took = b.clk.Now().Sub(f.sent)
	if len(f.answers) != len(f.requests) {
		f.answers = store.Failed(len(f.requests), fmt.Errorf("the store gave %d answers to %d requests", len(f.answers), len(f.requests)))
	}
	return f
}
