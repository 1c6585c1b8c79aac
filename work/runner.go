package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
)

// runner drives an engine: it makes its calls, runs its handlers, and tells it
// what happened. The package comment has the goroutines.
type runner struct {
	ledger   Ledger
	handlers map[string]Handler
	engine   *engine
	clk      clock.Clock
	events   chan any
	// over is closed when nobody listens to events any more.
	over chan struct{}
	// life is the context of calls. It outlives the caller's.
	life context.Context
	jobs map[attemptKey]*Job

	mu sync.Mutex
	// tickets holds a channel for each handler that waits for an answer.
	tickets map[int]chan Answer
	issued  int
}

func newRunner(l Ledger, handlers map[string]Handler, en *engine, clk clock.Clock) *runner {
	en.random = rand.Float64
	return &runner{
		ledger: l, handlers: handlers, engine: en, clk: clk, events: make(chan any, 64), over: make(chan struct{}),
		jobs: map[attemptKey]*Job{}, tickets: map[int]chan Answer{},
	}
}

// mostEvents bounds the events of one step of the engine.
const mostEvents = 256

func (r *runner) run(ctx context.Context) error {
	var end context.CancelFunc
	// Calls are owed an answer also when ctx has ended.
	r.life, end = context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer close(r.over)
	waking, stopWaking := context.WithCancel(ctx)
	defer stopWaking()
	go r.wake(waking)

	ended := ctx.Done()
	var events []any
	for {
		now := r.clk.Now()
		for _, action := range r.engine.step(now, events...) {
			r.do(ctx, action, now)
		}
		if now = r.clk.Now(); r.engine.over() || r.engine.expired(now) {
			return r.left()
		}
		events = events[:0]
		due := r.engine.next(now)
		timer := r.clk.Timer(due.Sub(now))
		select {
		case ev := <-r.events:
			events = append(events, ev)
		case <-ended:
			ended = nil
			events = append(events, drainEvent{})
		case <-timer.C():
		}
		timer.Stop()
		if late := r.clk.Now().Sub(due); late >= clock.LeastPause {
			r.engine.o.emit(Event{Kind: EventPaused, Took: late})
		}
		for more := true; more && len(events) < mostEvents; {
			select {
			case ev := <-r.events:
				events = append(events, ev)
			default:
				more = false
			}
		}
	}
}

// left returns the error of Run, given what the engine still waits for.
func (r *runner) left() error {
	switch n := r.engine.unresolved(); {
	case r.engine.fatal != nil:
		return r.engine.fatal
	case n > 0:
		return store.Unknown(fmt.Errorf("the worker has ended before the ledger answered about %d items; "+
			"they are done, or lapse and are requeued", n))
	case r.engine.again || r.engine.claiming:
		return store.Unknown(fmt.Errorf("the worker has ended before the ledger answered its last claim; " +
			"what that took lapses and is requeued"))
	}
	return nil
}

// tell sends an event to the loop, unless the loop has ended.
func (r *runner) tell(ev any) {
	select {
	case r.events <- ev:
	case <-r.over:
	}
}

func (r *runner) do(ctx context.Context, action any, now clock.Instant) {
	switch a := action.(type) {
	case Event:
		r.engine.o.emit(a)
	case claimAction:
		go func() {
			call, cancel := context.WithTimeout(r.life, r.engine.o.CallTimeout)
			defer cancel()
			items, err := r.ledger.Claim(call, a.claim)
			r.tell(claimedEvent{items: items, asked: a.claim.Limit, sent: now, err: err})
		}()
	case sendAction:
		go r.send(a, now)
	case lookAction:
		go r.look(a.attempts, now)
	case startAction:
		r.start(ctx, a.attempt)
	case loseAction:
		if j := r.jobs[a.attempt.key()]; j != nil {
			j.cancel(a.cause)
		}
	case replyAction:
		r.mu.Lock()
		c := r.tickets[a.ticket]
		delete(r.tickets, a.ticket)
		r.mu.Unlock()
		if c != nil {
			c <- a.answer
		}
	}
}

// send makes one call of the ledger and tells the engine its answers.
func (r *runner) send(a sendAction, now clock.Instant) {
	call, cancel := context.WithTimeout(r.life, r.engine.o.CallTimeout)
	defer cancel()
	requests := make([]Request, len(a.batch))
	for i, e := range a.batch {
		requests[i] = e.req
	}
	answers := r.ledger.Apply(call, requests)
	if len(answers) != len(requests) { // a broken ledger must not break the engine
		answers = FailedAnswers(len(requests), fmt.Errorf("%d requests got %d answers", len(requests), len(answers)))
	}
	r.tell(answeredEvent{beats: a.beats, batch: a.batch, answers: answers, sent: now})
}

// look reads the items of attempts from the ledger. It leaves out those that
// have another owner by now.
func (r *runner) look(attempts []*attempt, now clock.Instant) {
	call, cancel := context.WithTimeout(r.life, r.engine.o.CallTimeout)
	defer cancel()
	ev := lookedEvent{found: map[attemptKey]Item{}, asked: attempts, sent: now}
	var err error
	if ev.now, err = r.ledger.Now(call); err == nil {
		for _, att := range attempts {
			if it, err := r.ledger.Get(call, att.item.ID); err == nil && it.Record.Token == att.item.Record.Token {
				ev.found[att.key()] = it
			}
		}
	}
	r.tell(ev)
}

// start runs a handler in a goroutine of its own.
func (r *runner) start(ctx context.Context, att *attempt) {
	r.forgetDone()
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	key := att.key()
	j := &Job{item: att.item, secret: att.secret, cancel: cancel}
	j.ask = func(ctx context.Context, req Request) (Answer, error) { return r.ask(ctx, work, key, req) }
	r.jobs[key] = j
	handler := r.handlers[att.item.Queue]
	e := att.event(EventStarted)
	e.Waited = att.item.Record.Acquired.Sub(att.item.Ready)
	if len(att.item.Guards) == 0 {
		r.engine.o.emit(e)
	}
	go func() {
		defer cancel(nil)
		var result Result
		err := r.fence(work, j, e)
		if err == nil {
			result, err = call(work, handler, j)
		}
		r.tell(returnedEvent{key: key, end: endOf(j.result(result), err)})
	}()
}

// fence raises the fence at the guards of a job's item, before its handler
// begins. Then it makes sure that the claim is still the newest. An act that
// came before the first mark could not raise it, but the ledger knows of that
// act. A later act finds the mark.
func (r *runner) fence(work context.Context, j *Job, started Event) error {
	if len(j.item.Guards) == 0 {
		return nil
	}
	o := r.engine.o
	raiser := (&FenceOptions{Raise: o.Raise, CallTimeout: o.CallTimeout}).raiser(r.ledger, true)
	err := raiseFirst(work, raiser, []Item{j.item})[0]
	if err == nil {
		_, err = j.ask(work, Request{Verb: Heartbeat})
	}
	switch {
	case work.Err() != nil: // the item is lost, or the worker shuts down
		return context.Cause(work)
	case err != nil:
		e := started
		e.Kind, e.Waited, e.Err = EventUnfenced, 0, err
		o.emit(e)
		return ReleaseFor(err, UnfencedDelay)
	}
	o.emit(started)
	return nil
}

// forgetDone deletes the jobs of attempts that have ended, once there are many.
func (r *runner) forgetDone() {
	if len(r.jobs) <= 4*r.engine.o.Slots {
		return
	}
	for key := range r.jobs {
		if r.engine.byKey[key] == nil {
			delete(r.jobs, key)
		}
	}
}

// call runs a handler, and turns a panic or runtime.Goexit into an error.
func call(ctx context.Context, h Handler, j *Job) (result Result, err error) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		} else if !returned {
			err = fmt.Errorf("the handler ended its goroutine")
		}
	}()
	result, err = h(ctx, j)
	returned = true
	return result, err
}

// ask passes a handler's request to the engine and waits for the answer. It
// checks the input first, with a token and a secret that are only formally
// valid.
func (r *runner) ask(ctx, work context.Context, key attemptKey, req Request) (Answer, error) {
	full := req
	full.ID, full.Token, full.Secret = key.id, 1, "00000000000000000000000000000000"
	if err := full.Check(); err != nil {
		return Answer{}, err
	}
	c := make(chan Answer, 1)
	r.mu.Lock()
	r.issued++
	ticket := r.issued
	r.tickets[ticket] = c
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.tickets, ticket)
		r.mu.Unlock()
	}()
	r.tell(askedEvent{key: key, req: req, ticket: ticket})
	select {
	case a := <-c:
		return a, a.Err
	case <-ctx.Done():
		return Answer{}, store.Unknown(context.Cause(ctx))
	case <-work.Done():
		return Answer{}, context.Cause(work)
	case <-r.over:
		return Answer{}, store.Unknown(fmt.Errorf("the worker has ended"))
	}
}

// withoutHints is the pause before asking for hints again after the ledger has
// said that it cannot give any. By then it may be reached in another way, or be
// faster.
const withoutHints = 5 * time.Minute

// wake tells the engine of the ledger's hints. Without hints it asks for them
// again after a pause.
func (r *runner) wake(ctx context.Context) {
	waker, can := r.ledger.(Waker)
	for can && ctx.Err() == nil {
		pause := r.engine.o.Poll
		hints, err := waker.Wake(ctx, Wanted{Queues: r.engine.queues})
		if errors.Is(err, errors.ErrUnsupported) {
			pause = max(pause, withoutHints)
		}
		if err == nil {
			r.tell(wokenEvent{}) // something may have become ready before the hints began
			for range hints {
				r.tell(wokenEvent{})
			}
		}
		timer := r.clk.Timer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
