package croft

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// patientFor is how long requests wait for the batch before theirs. A batch that takes longer is overtaken.
	patientFor = time.Second
	// mostInFlight bounds the batches on their way, hanging ones included. Where a second one goes beside the first it is one more: the two may hang together.
	mostInFlight = 4
	// mostInBatch bounds the requests in one, so that a slow store answers within CallTimeout. Renewals fill no more than mostRenewals of it: however many
	// wait, other requests go along with the next of them.
	mostInBatch  = 1000
	mostRenewals = 800
	// promptly is how soon a store answers that a caller may wait for without watching anything else. Beyond it, what a goroutine costs is nothing.
	promptly = 10 * time.Millisecond
)

// combiner makes few calls of the store out of many requests: while one batch is on its way, the requests of other goroutines gather for
// the next. Nothing is delayed when idle, and nothing waits on a timer. Where the store is [store.Pipelined], a second batch goes beside the first as soon as it is as large.
type combiner struct {
	st      store.Store
	beside  bool // the store is pipelined
	life    context.Context
	timeout time.Duration
	clk     clock.Clock
	observe func(Event) // nil if nobody listens

	mu         sync.Mutex
	waiting    chain
	aloft      [mostInFlight + 1]*submission // the first of every batch on its way
	watchdog   *time.Timer                   // lets others overtake what hangs: one for all batches, looked after only when it has run out
	watching   bool                          // it is set
	flying     int                           // batches on their way,
	hanging    int                           // those of them that have been for longer than patientFor
	delivering int                           // batches whose answers are being given out
	prompt     bool                          // the last batch took no longer than promptly
	favoured   bool                          // the last batch that was taken was for renewals
	landed     chan struct{}                 // closed when nothing is on its way or given out, if somebody waits for it
}

// lane keeps apart what should not be in one call.
type lane int

const (
	fresh lane = iota // sent for the first time
	again             // not answered the last time: whatever it is that hangs shall not take others with it
	alone             // in a call of its own
)

// submission is what one caller wants carried out: it is not divided between batches, and holds at most mostInBatch requests. It is submitted once.
type submission struct {
	requests []tenure.Request
	lane     lane
	to       recipient
	next     *submission // the one that is given, waits or flies with it

	// Under the combiner's mutex.
	sent      bool // it waits no more
	withdrawn bool // it waits for nothing

	// Of the first of a batch on its way.
	hung   bool // it takes longer than patientFor
	single bool // nothing may go beside it
	size   int  // submissions in it
	began  time.Time
}

// mayPass reports whether a submission may go beside others: it begins or ends terms, and is sent for the first time. Renewals wait, so that none is on its way when its lease is given back.
func (s *submission) mayPass() bool {
	verb := s.requests[0].Verb
	return s.lane == fresh && (verb == tenure.Acquire || verb == tenure.Release)
}

// recipient takes an answer per request, once, and the instant just before they were sent. It must not block.
type recipient interface {
	receive(answers []store.Answer, sent clock.Instant)
}

// told is a recipient that is a function.
type told func(answers []store.Answer, sent clock.Instant)

func (f told) receive(answers []store.Answer, sent clock.Instant) { f(answers, sent) }

// chain is a queue of submissions.
type chain struct {
	first, last *submission
	size        int // submissions in it,
	others      int // those of them that may not go beside a batch
}

func (c *chain) add(s *submission) {
	s.next = nil
	if c.last == nil {
		c.first = s
	} else {
		c.last.next = s
	}
	c.last = s
	c.size++
	if !s.mayPass() {
		c.others++
	}
}

// addAll adds a submission and what goes with it. The caller holds the combiner's mutex.
func (c *chain) addAll(s *submission) {
	for s != nil {
		next := s.next
		if s.withdrawn { // before it could be submitted
			s.next = nil
		} else {
			c.add(s)
		}
		s = next
	}
}

// submit takes a submission and what goes with it, and returns. Their context is the combiner's own: a caller that goes away leaves its requests on their way. Submissions that are given
// together, and are in one lane, go together.
func (b *combiner) submit(s *submission) {
	b.mu.Lock()
	b.waiting.addAll(s)
	batch := b.take()
	b.mu.Unlock()
	if batch != nil {
		go b.fly(batch)
	}
}

// carry is submit for a caller that only waits for the answer. If nothing else is on its way and the store has been prompt, it makes the call itself, and the answer is
// given out before carry returns, at the latest soon after ctx ends or patientFor has passed: handing the call to a goroutine and the answer back would take as long again as many a store.
func (b *combiner) carry(ctx context.Context, s *submission) {
	b.mu.Lock()
	if !b.prompt || b.flying > 0 || b.waiting.first != nil || ctx.Err() != nil {
		b.mu.Unlock()
		b.submit(s)
		return
	}
	var batch chain
	batch.addAll(s)
	b.launch(batch)
	b.mu.Unlock()

	f, next := b.flight(ctx, min(patientFor, b.timeout), s)
	if next != nil {
		go b.fly(next)
	}
	b.deliver(f)
	// Giving back is worth another message. Anything else that the caller has left might come when it, or others, have gone on to something else.
	if f.requests[0].Verb == tenure.Release && !known(f.answers[0].Err) && ctx.Err() != nil {
		b.submit(&submission{requests: s.requests, lane: again, to: told(func([]store.Answer, clock.Instant) {})})
	}
}

// take returns the batch that may go now, or nil. The caller holds the mutex.
func (b *combiner) take() *submission {
	most := mostInFlight
	if b.beside {
		most++
	}
	if b.waiting.first == nil || b.flying >= most || b.flying > b.hanging && !b.mayGoBeside() {
		return nil
	}
	lead := b.lead()
	if lead == nil {
		b.waiting = chain{}
		return nil
	}
	b.favoured = lead.requests[0].Verb == tenure.Renew
	var batch, rest chain
	room := mostInBatch - len(lead.requests)
	for s := b.waiting.first; s != nil; {
		next := s.next
		switch {
		case s.withdrawn:
			s.next = nil
		case s == lead:
			batch.add(s)
		case s.lane == lead.lane && s.lane != alone && len(s.requests) <= room:
			batch.add(s)
			room -= len(s.requests)
		default:
			rest.add(s)
		}
		s = next
	}
	b.waiting = rest
	b.launch(batch)
	return batch.first
}

// lead is the submission that must be in the next batch: every other time the first renewals, however many others came before them, because who asks can wait and a lease cannot; else the first
// of all. It is nil if all were withdrawn. The caller holds the mutex.
func (b *combiner) lead() *submission {
	var first *submission
	for s := b.waiting.first; s != nil; s = s.next {
		if s.withdrawn {
			continue
		}
		if first == nil {
			first = s
		}
		if b.favoured || b.waiting.others == 0 {
			break
		}
		if s.requests[0].Verb == tenure.Renew {
			return s
		}
	}
	return first
}

// waits reports whether a submission has yet to be sent: then another of the same requests would only make the queue longer, and what is in it later.
func (b *combiner) waits(s *submission) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !s.sent
}

// withdraw takes a submission back, and reports false if it was sent before that. It gets no answer.
func (b *combiner) withdraw(s *submission) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.withdrawn = !s.sent
	return s.withdrawn
}

// mayGoBeside reports whether what has gathered may go beside the one batch on its way: if there are as many, so that batches do not become smaller and smaller, and they are about other keys. What is about one key goes in its order: who has
// left a release on its way, and asks for the key again, is not refused on account of its own lease. The caller holds the mutex, and has seen that something is on its way.
func (b *combiner) mayGoBeside() bool {
	if !b.beside || b.waiting.others > 0 || b.flying > 1 {
		return false
	}
	before := b.aloft[slices.IndexFunc(b.aloft[:], func(s *submission) bool { return s != nil })]
	if before.single || b.waiting.size < before.size {
		return false
	}
	before.single = meet(before, b.waiting.first)
	return !before.single
}

// meet reports whether submissions have a key in common with others.
func meet(some, others *submission) bool {
	keys := make(map[string]struct{}, some.size)
	for s := some; s != nil; s = s.next {
		for i := range s.requests {
			keys[s.requests[i].Key] = struct{}{}
		}
	}
	for s := others; s != nil; s = s.next {
		for i := range s.requests {
			if _, both := keys[s.requests[i].Key]; both {
				return true
			}
		}
	}
	return false
}

// launch puts a batch among those on their way. The caller holds the mutex, and has seen that there is room.
func (b *combiner) launch(batch chain) {
	first := batch.first
	first.began, first.hung, first.size, first.single = time.Now(), false, batch.size, batch.others > 0
	for s := first; s != nil; s = s.next {
		s.sent = true
	}
	b.flying++
	b.aloft[slices.Index(b.aloft[:], nil)] = first
	if !b.watching {
		b.watch(patientFor)
	}
}

// watch sets the watchdog. The caller holds the mutex.
func (b *combiner) watch(d time.Duration) {
	b.watching = true
	if b.watchdog == nil {
		b.watchdog = time.AfterFunc(d, b.look)
	} else {
		b.watchdog.Reset(d)
	}
}

// look lets others overtake the batches that hang, and comes back for those that may yet.
func (b *combiner) look() {
	b.mu.Lock()
	b.watching = false
	soonest := Forever
	for _, batch := range b.aloft {
		if batch == nil || batch.hung {
			continue
		}
		if left := patientFor - time.Since(batch.began); left > 0 {
			soonest = min(soonest, left)
		} else {
			batch.hung = true
			b.hanging++
		}
	}
	if soonest != Forever {
		b.watch(soonest)
	}
	next := b.take()
	b.mu.Unlock()
	if next != nil {
		go b.fly(next)
	}
}

// fly carries out a batch, and then those that have gathered meanwhile. The next is sent before the answers are given out, so that the store has something to do.
func (b *combiner) fly(batch *submission) {
	for batch != nil {
		f, next := b.flight(b.life, b.timeout, batch)
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
	batch    *submission
	requests []tenure.Request
	answers  []store.Answer
	sent     clock.Instant
	took     time.Duration
}

// flight makes one call of a batch that was launched, within ctx and at most for limit, and returns the batch that may go next.
func (b *combiner) flight(ctx context.Context, limit time.Duration, batch *submission) (f flown, next *submission) {
	bounded, cancel := context.WithDeadline(ctx, batch.began.Add(limit))
	defer func() {
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.aloft[slices.Index(b.aloft[:], batch)] = nil
		if batch.hung {
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
	return b.call(bounded, batch), nil
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
	for s := f.batch; s != nil; {
		n, next := len(s.requests), s.next
		s.next = nil // whoever keeps it keeps no others
		s.to.receive(rest[:n:n], f.sent)
		s, rest = next, rest[n:]
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
	if b.flying > 0 || b.delivering > 0 || b.landed == nil {
		return
	}
	close(b.landed)
	b.landed = nil
	if b.watching {
		b.watching = false
		b.watchdog.Stop()
	}
}

// call is one call of the store.
func (b *combiner) call(ctx context.Context, batch *submission) flown {
	f := flown{batch: batch, requests: batch.requests}
	if batch.next != nil {
		n := 0
		for s := batch; s != nil; s = s.next {
			n += len(s.requests)
		}
		f.requests = make([]tenure.Request, 0, n)
		for s := batch; s != nil; s = s.next {
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
