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
)

// combiner makes few calls of the store out of many requests: while one batch is on its way, the requests of other goroutines gather for
// the next. Nothing is delayed when idle, and nothing waits on a timer.
type combiner struct {
	st      store.Store
	life    context.Context
	timeout time.Duration
	clk     clock.Clock
	observe func(Event) // nil if nobody listens

	mu      sync.Mutex
	waiting []*submission
	flying  int           // batches on their way,
	hanging int           // those of them that have been for longer than patientFor
	landed  chan struct{} // closed when flying is 0, if somebody waits for it
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

// submit takes requests and returns. Their context is the combiner's own: a caller that goes away leaves its requests on their way.
func (b *combiner) submit(s *submission) {
	b.mu.Lock()
	b.waiting = append(b.waiting, s)
	batch := b.take()
	b.mu.Unlock()
	if batch != nil {
		go b.fly(batch)
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

// fly carries out a batch, and then those that have gathered meanwhile.
func (b *combiner) fly(batch []*submission) {
	for batch != nil {
		landed, hung := false, false // under the mutex
		overtake := time.AfterFunc(patientFor, func() {
			b.mu.Lock()
			var next []*submission
			if !landed {
				hung = true
				b.hanging++
				next = b.take()
			}
			b.mu.Unlock()
			if next != nil {
				go b.fly(next)
			}
		})
		b.call(batch)
		overtake.Stop()

		b.mu.Lock()
		landed = true
		if hung {
			b.hanging--
		}
		b.flying--
		batch = b.take()
		b.settle()
		b.mu.Unlock()
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
	if b.flying == 0 && b.landed != nil {
		close(b.landed)
		b.landed = nil
	}
}

// call is one call of the store.
func (b *combiner) call(batch []*submission) {
	requests := batch[0].requests
	if len(batch) > 1 {
		requests = nil
		for _, s := range batch {
			requests = append(requests, s.requests...)
		}
	}
	ctx, cancel := context.WithTimeout(b.life, b.timeout)
	defer cancel()
	sent := b.clk.Now()
	answers := b.st.Apply(ctx, requests)
	took := b.clk.Now().Sub(sent)
	if len(answers) != len(requests) {
		answers = store.Failed(len(requests), fmt.Errorf("the store gave %d answers to %d requests", len(answers), len(requests)))
	}
	rest := answers
	for _, s := range batch {
		n := len(s.requests)
		s.done(rest[:n:n], sent)
		rest = rest[n:]
	}
	if b.observe != nil {
		b.report(requests, answers, took)
	}
}
