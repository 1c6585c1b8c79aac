package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// Forever is a WaitFor without end.
	Forever time.Duration = math.MaxInt64
	// hungAfter is how long the engine waits for an answer before it sends a
	// request again, and before it lets others overtake a batch.
	hungAfter = time.Second
	// askAgain is the pause after the first unknown answer. Every further pause
	// is twice as long, up to hungAfter.
	askAgain = 25 * time.Millisecond
	// eventually keeps the alarm of an active call set when nothing is due.
	eventually = renewal.Never - 1
)

// errNoAnswer stands for an answer that did not come.
var errNoAnswer = store.Unknown(errors.New("the store has not answered in time; check that it can be reached"))

// Call is one wish of one caller. The caller fills in the exported fields
// except Reply, and does not change them after Begin.
type Call struct {
	// Request is the request to send. The caller has checked it. An acquire's
	// request has no secret: the engine makes it.
	Request tenure.Request
	// Policy says how an acquired lease is kept.
	Policy renewal.Policy
	// WaitFor is how long an acquire waits for a key that is held. 0 means one
	// try.
	WaitFor time.Duration
	// Seen makes an acquire end as soon as the key has a holder with another
	// token than this. nil lets it wait.
	Seen *fence.Token
	// Guarded says that the fence must be raised before an acquire is answered.
	Guarded bool
	// Lease is the lease to release, report on, retime or resume. Acquires,
	// operators' acts and acts by a deed have none.
	Lease *Lease
	// Bound is how long the engine pursues an unknown outcome, except an
	// acquire's. 0 means until the call is abandoned.
	Bound time.Duration
	// Tag belongs to the caller.
	Tag any

	// Reply is the outcome.
	Reply Reply

	state   callState
	began   clock.Instant
	limit   clock.Instant // when to stop pursuing an unknown outcome
	alarm   alarm
	attempt *attempt
	first   attempt       // memory for the first attempt
	next    clock.Instant // when to ask again
	pause   time.Duration // how long to wait after the next unknown answer
	unknown error         // the last unknown answer
	acquire acquire
	then    *Call // replied to after this one, with thenErr
	thenErr error
}

type callState int

const (
	open    callState = iota // it has no reply yet
	raising                  // granted: the fence is being raised
	done                     // it has its reply
)

// Reply is the outcome of a call.
type Reply struct {
	// Err is why the call failed; nil if it succeeded.
	Err error
	// Lost is set if the call failed because its lease is over. Then Err may be
	// nil.
	Lost *Lost
	// Lease is the lease that was acquired or resumed.
	Lease *Lease
	// Answer is the store's answer, if the store decided. It is part of a
	// batch's answers: keeping it keeps all of them in memory.
	Answer *store.Answer
}

// reply answers a call. The caller has set the other fields of Reply.
func (e *Engine) reply(c *Call, err error) {
	if c.state == done {
		return
	}
	c.Reply.Err, c.state = err, done
	e.alarms.set(&c.alarm, renewal.Never)
	e.active--
	e.ready.Replies = append(e.ready.Replies, c)
	if c.then != nil {
		e.reply(c.then, c.thenErr)
	}
}

// ask begins a call that is one plain request: all but acquires. It asks until
// the outcome is known, the bound has passed, or the caller leaves.
func (e *Engine) ask(c *Call) {
	c.limit, c.pause = eventually, askAgain
	if c.Bound > 0 {
		c.limit = renewal.After(e.now, c.Bound)
	}
	c.first = attempt{call: c, request: &c.Request}
	c.attempt = &c.first
	e.put(c.attempt, fresh)
	e.setAskAlarm(c)
}

// setAskAlarm sets the alarm of a plain call to when it has something to do.
func (e *Engine) setAskAlarm(c *Call) {
	at := renewal.After(e.now, hungAfter)
	if a := c.attempt; a.queued == nil {
		at = c.next
		if a.newest != nil {
			at = a.newest.hungAt()
		}
	}
	e.alarms.set(&c.alarm, min(at, c.limit))
}

// callDue looks at a call whose alarm has rung.
func (e *Engine) callDue(c *Call) {
	if c.Request.Verb == tenure.Acquire {
		e.acquireDue(c)
		return
	}
	a := c.attempt
	switch {
	case e.now >= c.limit:
		e.giveUp(c, context.DeadlineExceeded)
		return
	case a == nil: // it waits for another release of the same lease
		e.alarms.set(&c.alarm, c.limit)
		return
	case a.queued != nil:
	case a.newest != nil && e.now >= a.newest.hungAt(), a.newest == nil && e.now >= c.next:
		e.put(a, again)
	}
	e.setAskAlarm(c)
}

// asked takes the store's answer to a plain request.
func (e *Engine) asked(c *Call, r *request, answer *store.Answer) {
	a := c.attempt
	if c.hopeless(answer.Err) {
		e.drop(a)
		e.reply(c, fmt.Errorf("%s of %q: %w", a.request.Verb, a.request.Key, answer.Err))
		return
	}
	if !known(answer.Err) {
		cutShort := errors.Is(answer.Err, context.Canceled) || errors.Is(answer.Err, context.DeadlineExceeded)
		// The end of a context is the least useful error: keep an earlier one.
		if c.unknown == nil || !cutShort {
			c.unknown = answer.Err
		}
		e.event(Event{Kind: Unknown, Key: a.request.Key, Verb: a.request.Verb, Err: answer.Err})
		if a.newest == nil && a.queued == nil {
			c.next = renewal.After(e.now, c.pause)
			c.pause = min(2*c.pause, hungAfter)
		}
		e.setAskAlarm(c)
		return
	}
	e.drop(a)
	if a.copies > 1 {
		e.event(Event{Kind: Resolved, Key: a.request.Key, Verb: a.request.Verb, Outcome: OutcomeOf(answer.Err)})
	}
	c.Reply.Answer = answer
	switch {
	case c.Lease == nil:
		e.reply(c, answer.Err)
	case c.Request.Verb == tenure.Release:
		e.released(c)
	case reports(c.Request.Verb):
		e.reported(c)
	case !c.Request.Resume:
		e.retimed(c, r.sent)
	default:
		e.resumed(c, r.sent)
	}
}

// giveUp ends a plain call without an outcome. A release that was sent stays in
// flight. A release that was not sent is sent now: one message may free the
// key.
func (e *Engine) giveUp(c *Call, why error) {
	verb, key, a := c.Request.Verb, c.Request.Key, c.attempt
	// A release may still take effect: a copy goes on after this.
	refused := a != nil && a.doubt == 0 && verb != tenure.Release && store.IsFault(c.unknown)
	var err error
	switch {
	case a == nil:
		l := c.Lease
		l.releases = without(l.releases, c)
		e.reply(c, fmt.Errorf("release of %q: another is under way: %w", key, why))
		return
	case verb == tenure.Release:
		if a.queued == nil && a.newest == nil {
			e.put(a, again)
		}
		fallthrough
	case a.copies > 0:
		last := c.unknown
		if last == nil {
			last = errNoAnswer
		}
		if refused {
			err = store.Fault(fmt.Errorf("%s of %q was not done in %d tries: %w (%w)", verb, key, a.copies, last, why))
			break
		}
		err = store.Unknown(fmt.Errorf("%s of %q has no known outcome after %d tries; it is safe to repeat: %w (%w)",
			verb, key, max(a.copies, 1), last, why))
	default:
		err = fmt.Errorf("%s of %q: %w; %w", verb, key, why, errUnsent)
	}
	if verb != tenure.Release {
		e.drop(a) // nobody expects its effect any more
	}
	if c.Lease != nil && verb == tenure.Release {
		e.releaseLeft(c, err)
		return
	}
	e.reply(c, err)
}
