package work

import (
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/tenure"
)

// engine decides everything that a worker does: when to claim, what to send,
// when a handler must stop. It is a state machine without goroutine, clock,
// lock or I/O. Events and the time go in, actions come out. The runner drives
// it in production, and tests drive it step by step. The package comment tells
// its model.
type engine struct {
	o      Options
	queues []string
	secret func() tenure.Secret
	random func() float64 // from 0 up to 1

	// attempts is in the order of claims. Ended attempts stay in it until the
	// end of the step.
	attempts []*attempt
	byKey    map[attemptKey]*attempt
	running  int // attempts whose handler runs
	// due is when the next attempt needs attention. With thousands of attempts
	// most steps look at none.
	due clock.Instant

	claiming bool          // a claim is in flight
	again    bool          // the last claim may have taken items, and is sent again
	granted  tenure.Secret // of the last claim
	asked    clock.Instant // when that claim was first sent: its items are held from then on
	claimAt  clock.Instant
	freeAt   clock.Instant // since when slots are free
	idle     time.Duration // the pause before the next claim
	woken    bool          // a hint came while a claim was in flight

	out     []*outgoing // to be sent
	sending bool
	outAt   clock.Instant // since when the first of out waits
	sendAt  clock.Instant // before then nothing is sent
	retry   time.Duration
	beating bool // heartbeats are in flight
	looking bool // a read of progress is in flight

	phase            phase
	drainBy, graceBy clock.Instant
	fatal            error

	actions []any
}

// phase is how far the shutdown has come.
type phase int

const (
	open      phase = iota
	finishing       // nothing is claimed, handlers may finish
	stopping        // handlers have been told to stop
	leaving         // no handler runs, the ledger may still answer
)

// attemptKey tells two attempts of one item apart.
type attemptKey struct {
	id    ID
	token int64
}

// attempt is one claim of one item. Its handler runs, or has returned and the
// ledger has not yet answered.
type attempt struct {
	item     Item
	secret   tenure.Secret
	running  bool
	lost     *LostError
	end      *Request      // the request that ends it
	deadline clock.Instant // local, never later than the ledger's
	beatAt   clock.Instant
	moved    clock.Instant // the last known progress
	reported time.Time     // the newest progress that the ledger has shown
	lookAt   clock.Instant // when to ask the ledger for newer progress
	began    clock.Instant
}

func (att *attempt) key() attemptKey { return attemptKey{att.item.ID, int64(att.item.Record.Token)} }

// outgoing is one request that waits to be sent or is in flight.
type outgoing struct {
	req     Request
	attempt *attempt
	// ticket names the handler that waits for the answer. It is 0 for a
	// heartbeat and for the end of an attempt.
	ticket int
}

// The events that the engine is told of.
type (
	// claimedEvent: a claim was answered, or failed with err.
	claimedEvent struct {
		items []Item
		asked int           // the limit of the claim
		sent  clock.Instant // when it was sent, the last time
		err   error
	}
	// returnedEvent: a handler has returned.
	returnedEvent struct {
		key attemptKey
		end Request // lacks the owner's identity
	}
	// askedEvent: a handler wants something written, and waits for the answer.
	askedEvent struct {
		key    attemptKey
		req    Request // lacks the owner's identity
		ticket int
	}
	// answeredEvent: the ledger has answered a batch, or failed to.
	answeredEvent struct {
		beats   bool // the batch is of heartbeats
		batch   []*outgoing
		answers []Answer // one for each of the batch
		sent    clock.Instant
	}
	// lookedEvent: the progress of attempts was read.
	lookedEvent struct {
		found map[attemptKey]Item // only those that the ledger has answered
		asked []*attempt
		now   time.Time // on the ledger's clock
		sent  clock.Instant
	}
	// wokenEvent: an item may have become ready.
	wokenEvent struct{}
	// drainEvent: the worker is to shut down.
	drainEvent struct{}
)

// The actions that the engine wants done. An [Event] is one, too: it is to be
// emitted.
type (
	// claimAction: send a claim.
	claimAction struct{ claim Claim }
	// sendAction: send a batch of requests in one call.
	sendAction struct {
		beats bool
		batch []*outgoing
	}
	// lookAction: read the progress of attempts.
	lookAction struct{ attempts []*attempt }
	// startAction: start the handler of an attempt.
	startAction struct{ attempt *attempt }
	// loseAction: end the context of a handler.
	loseAction struct {
		attempt *attempt
		cause   *LostError
	}
	// replyAction: answer the handler that waits with this ticket.
	replyAction struct {
		ticket int
		answer Answer
	}
)

func newEngine(queues []string, o Options) *engine {
	return &engine{
		freeAt: never, o: o, queues: queues, secret: tenure.NewSecret,
		random: func() float64 { return 0.5 }, byKey: map[attemptKey]*attempt{},
	}
}

// margin is how much earlier the local deadline is than the ledger's.
func (en *engine) margin() time.Duration { return en.o.TTL / 10 }

// step takes in events and returns what to do now. Most steps touch only the
// attempts of their events. All attempts are looked at only when one is due.
func (en *engine) step(now clock.Instant, events ...any) []any {
	en.actions = nil
	for _, ev := range events {
		switch ev := ev.(type) {
		case claimedEvent:
			en.onClaimed(ev, now)
		case returnedEvent:
			en.onReturned(ev, now)
		case askedEvent:
			en.onAsked(ev, now)
		case answeredEvent:
			if ev.beats {
				en.onBeats(ev, now)
			} else {
				en.onAnswers(ev, now)
			}
		case lookedEvent:
			en.onLooked(ev, now)
		case wokenEvent:
			en.woken, en.idle, en.claimAt = true, 0, min(en.claimAt, now)
		case drainEvent:
			en.drain(now)
		}
	}
	en.advanceShutdown(now)
	if now >= en.due {
		en.stopExpired(now)
		en.look(now)
		en.beat(now)
		en.due = en.nextDue(now)
	}
	en.send(now)
	en.claimIfDue(now)
	if len(en.attempts) > len(en.byKey) {
		en.attempts = slices.DeleteFunc(en.attempts, func(att *attempt) bool { return en.byKey[att.key()] != att })
	}
	return en.actions
}

func (en *engine) do(action any)   { en.actions = append(en.actions, action) }
func (en *engine) note(e Event)    { en.do(e) }
func (en *engine) over() bool      { return en.phase == leaving && en.quiet() }
func (en *engine) unresolved() int { return len(en.byKey) }
func (en *engine) stalled(att *attempt, now clock.Instant) bool {
	return en.o.StallAfter > 0 && now.Sub(att.moved) >= en.o.StallAfter
}

// quiet reports whether no attempt and no request is left.
func (en *engine) quiet() bool {
	return len(en.byKey) == 0 && !en.claiming && !en.again && !en.sending && !en.beating && len(en.out) == 0
}

// drain begins the shutdown.
func (en *engine) drain(now clock.Instant) {
	if en.phase == open {
		en.phase, en.drainBy = finishing, now.Add(en.o.Drain)
	}
}

// advanceShutdown enters the next phase of the shutdown when it is due.
func (en *engine) advanceShutdown(now clock.Instant) {
	if en.phase == finishing && now >= en.drainBy {
		for _, att := range en.attempts {
			if att.running && att.lost == nil {
				en.lose(att, Drained, nil)
			}
		}
		en.phase, en.graceBy = stopping, now.Add(en.o.Grace)
	}
	if en.phase == stopping && now >= en.graceBy {
		for _, att := range en.attempts {
			if att.running { // its goroutine lives on, but what it returns is ignored
				en.note(att.event(EventAbandoned))
				en.endAttempt(att, Request{Verb: Release}, now)
			}
		}
	}
	if (en.phase == finishing || en.phase == stopping) && en.running == 0 {
		en.phase, en.graceBy = leaving, now.Add(en.o.Grace)
	}
}

// expired reports whether the worker must leave although requests are still
// open.
func (en *engine) expired(now clock.Instant) bool { return en.phase == leaving && now >= en.graceBy }

// lose tells a handler to stop. A second loss counts only if it is Superseded:
// then the end of the attempt need not be sent.
func (en *engine) lose(att *attempt, loss Loss, err error) {
	if att.lost != nil {
		if loss != Superseded || att.lost.Loss == Superseded {
			return
		}
	}
	att.lost = &LostError{Item: att.item.ID, Token: att.item.Record.Token, Loss: loss, Err: err}
	e := att.event(EventLost)
	e.Loss, e.Err = loss, err
	en.note(e)
	if att.running {
		en.do(loseAction{att, att.lost})
	}
}

// event returns an event about this attempt.
func (att *attempt) event(kind EventKind) Event {
	return Event{
		Kind: kind, Queue: att.item.Queue, Item: att.item.ID, Token: att.item.Record.Token,
		Attempt: att.item.Attempts,
	}
}

// stopExpired ends the contexts of handlers whose local deadline has passed.
func (en *engine) stopExpired(now clock.Instant) {
	for _, att := range en.attempts {
		if att.running && att.lost == nil && now >= att.deadline {
			if en.stalled(att, now) {
				en.lose(att, Stalled, nil)
			} else {
				en.lose(att, Expired, nil)
			}
		}
	}
}

// nextDue is when an attempt next needs attention if nothing happens before.
func (en *engine) nextDue(now clock.Instant) clock.Instant {
	at := now.Add(time.Hour)
	for _, att := range en.attempts {
		if att.running && att.lost == nil {
			at = min(at, att.deadline)
			if en.o.StallAfter > 0 && !en.looking {
				at = min(at, max(att.moved.Add(en.o.StallAfter), att.lookAt))
			}
		}
		if !en.beating && en.beats(att, now) {
			at = min(at, att.beatAt)
		}
	}
	return at
}

// longest bounds the time between two steps while there are attempts. Timers of
// the process may stand still while the machine sleeps.
const longest = time.Second

// next is when the engine wants its next step if nothing happens before.
func (en *engine) next(now clock.Instant) clock.Instant {
	at := en.due
	sooner := func(t clock.Instant) { at = min(at, t) }
	if len(en.byKey) > 0 {
		sooner(now.Add(longest))
	}
	if len(en.out) > 0 && !en.sending {
		sooner(en.sendsAt())
	}
	if en.wantsClaim() {
		sooner(en.claimsAt())
	}
	switch en.phase {
	case finishing:
		sooner(en.drainBy)
	case stopping, leaving:
		sooner(en.graceBy)
	}
	return max(at, now)
}
