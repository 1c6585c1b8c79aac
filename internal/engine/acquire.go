package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// acquire is the part of a call that only an acquire has.
type acquire struct {
	queue         *queue
	before, after *Call
	end           clock.Instant // when WaitFor ends
	overdue       bool          // it waits behind the head, and its WaitFor has ended

	// Once it has become the head:
	started  bool
	earliest clock.Instant // it does not ask before then
	due      clock.Instant // when to ask at the latest, even if hints come
	poll     time.Duration // the pause before the next poll
	woken    bool          // ask as soon as allowed
	// Refused because of its own period, which says nothing about the key.
	period   bool
	watching bool  // it has asked for hints
	burned   int   // secrets in a row that were used up
	refused  error // the last refusal
	unknown  bool  // an Unknown event has had no Resolved yet

	// While its fence is raised:
	above     bool // it asks again, for a token above one that a guard remembers
	abandoned bool // the caller has left
}

var (
	errTooOld = store.Unknown(errors.New("the key was granted too long ago to be of use; " +
		"try again when that grant has lapsed"))
	// errPending answers a caller that leaves while its request is in flight.
	errPending = store.Unknown(errors.New("whether it was granted is not known yet; " +
		"if it was, it is released in the background"))
	// errUnsent answers a caller that leaves before its request was sent.
	errUnsent = store.Unknown(errors.New("it was never sent, because the store has not answered " +
		"what was sent before it; nothing was changed"))
)

// idle reports whether no copy of the attempt's request waits or may have been
// granted.
func (a *attempt) idle() bool { return a == nil || a.queued == nil && a.doubt == 0 }

// start lets a call ask, because it has become the head of its queue.
func (e *Engine) start(c *Call) {
	a := &c.acquire
	q := a.queue
	a.started, a.poll = true, PollFirst
	c.next, c.limit = e.now, max(a.end, renewal.After(e.now, e.o.CallTimeout))
	if a.overdue {
		a.overdue, a.woken = false, true
		q.overdue--
	}
	switch {
	case q.holder != nil: // it learns at once when this client's lease ends
		a.poll = PollMax
		c.next = min(renewal.After(e.now, PollMax), a.end)
	case q.yield:
		e.watchFirst(c)
		e.letOthersFirst(c)
	case e.watchFirst(c): // it asks when hints come, or else without them
		c.next = min(renewal.After(e.now, PollFirst), a.end)
	}
	a.woken = a.woken || q.overdue > 0
	e.tryAcquire(c)
}

// tryAcquire asks for the key if it is time to.
func (e *Engine) tryAcquire(c *Call) {
	a, acquire := c.attempt, &c.acquire
	asking := a != nil && (a.queued != nil || a.newest != nil)
	if acquire.started && !asking && e.now >= acquire.earliest && (e.now >= c.next || acquire.woken) {
		acquire.woken = false
		at := fresh
		switch {
		case a == nil:
			a = e.newAttempt(c)
		case a.sends > 0:
			at = again
		}
		e.put(a, at)
	}
	e.setAcquireAlarm(c)
}

// newAttempt makes an attempt with a new secret.
func (e *Engine) newAttempt(c *Call) *attempt {
	a, req := &c.first, &c.Request
	// An earlier attempt still uses this memory.
	if a.call != nil {
		a, req = new(attempt), new(tenure.Request)
		*req = c.Request
	}
	*a = attempt{call: c, request: req}
	req.Secret = e.o.NewSecret()
	c.attempt = a
	return a
}

// setAcquireAlarm sets the alarm of the head to when it has something to do.
func (e *Engine) setAcquireAlarm(c *Call) {
	if c.state != open || !c.acquire.started {
		return
	}
	at := max(c.next, c.acquire.earliest)
	if a := c.attempt; a != nil {
		switch {
		case a.queued != nil:
			at = renewal.After(e.now, hungAfter)
			if c.alarm.index > 0 {
				at = min(at, c.alarm.at) // hints must not delay the end of WaitFor
			}
		case a.newest != nil:
			at = a.newest.hungAt()
		case a.sends > 0:
			at = min(at, c.limit)
		}
	}
	e.alarms.set(&c.alarm, at)
}

// acquireDue looks at an acquire whose alarm has rung.
func (e *Engine) acquireDue(c *Call) {
	if !c.acquire.started {
		e.standBy(c)
		return
	}
	a := c.attempt
	if a != nil && a.newest != nil && e.now >= a.newest.hungAt() {
		a.newest, c.next = nil, e.now
	}
	if a != nil && a.newest == nil && (a.sends > 0 || a.queued != nil) && e.now >= c.limit {
		err := c.unknown
		if err == nil {
			err = errNoAnswer
		}
		if a.copies == 0 {
			err = errUnsent
		}
		if e.leave(a) && store.IsFault(err) {
			err = &store.UnknownError{Err: err} // the fault is the last copy's, not the request's
		}
		e.leaveQueue(c, fmt.Errorf("acquire %q: %w", c.Request.Key, err))
		return
	}
	e.tryAcquire(c)
}

// acquireAnswered takes the store's answer to one copy of an acquire.
func (e *Engine) acquireAnswered(c *Call, r *request, answer *store.Answer) {
	a, acquire := c.attempt, &c.acquire
	var held *tenure.HeldError
	switch err := answer.Err; {
	case err == nil:
		e.granted(c, r, answer)
	case errors.As(err, &held):
		a.sends, acquire.burned = 0, 0
		acquire.refused = err
		e.held(c, held, r.sent)
	case errors.Is(err, tenure.ErrNotOwned):
		// A copy was granted, and its term is over: the secret is used up.
		e.drop(a)
		c.attempt, c.unknown = nil, nil
		acquire.burned++
		c.next = e.now
		if acquire.burned > 1 {
			c.next = renewal.After(e.now, e.pauseOf(c, PollMax))
		}
		e.tryAcquire(c)
	case errors.Is(err, fence.ErrInvalid):
		e.leave(a)
		e.leaveQueue(c, err)
	case c.hopeless(err):
		e.leave(a)
		e.leaveQueue(c, fmt.Errorf("acquire %q: %w", c.Request.Key, err))
	default:
		c.unknown, acquire.unknown = err, true
		e.event(Event{Kind: Unknown, Key: c.Request.Key, Verb: tenure.Acquire, Err: err})
		if a.newest == nil && a.queued == nil {
			c.next = renewal.After(e.now, e.pauseOf(c, PollMax))
		}
		e.setAcquireAlarm(c)
	}
}

// held takes a refusal. The call asks again later, unless its WaitFor has
// ended, or its period ends too late for it. Work that is done once is done,
// even for a call that waits forever.
func (e *Engine) held(c *Call, held *tenure.HeldError, asked clock.Instant) {
	a := &c.acquire
	q := a.queue
	a.period = held.Why == tenure.WhyPeriod
	over := e.now >= a.end || c.sees(held) ||
		a.period && (c.Request.Every == tenure.Once || renewal.After(e.now, held.Remaining()) > a.end)
	q.refusal, q.every, q.at, q.asked = held, c.Request.Every, e.now, asked
	if over {
		e.leave(c.attempt)
		e.tellOverdue(q)
		e.leaveQueue(c, held)
		return
	}
	most := PollMax
	switch {
	case held.Why == tenure.WhyHold || a.period:
		most = PollSettled
	case q.watch == watched || q.holder != nil:
		most = PollWatched
	}
	freed := max(held.Remaining(), 0) + time.Millisecond + renewal.Spread(PollFirst, 0, 1, e.o.Random())
	a.due = min(renewal.After(e.now, freed), a.end)
	c.next = min(renewal.After(e.now, e.pauseOf(c, most)), a.due)
	e.askForHints(c)
	e.tellOverdue(q)
	e.tryAcquire(c)
	// A call behind it, with another period, may get the key.
	e.advanceQueue(q)
}

// sees reports whether a call ends because the key has a holder that its caller
// does not know yet.
func (c *Call) sees(held *tenure.HeldError) bool {
	return c.Seen != nil && held.Why == tenure.WhyHeld && held.Record.Token != *c.Seen
}

// granted takes a grant and makes a lease of it. A grant that was made too long
// ago gives no authority. Then the call asks until the store says that the
// grant is over.
func (e *Engine) granted(c *Call, r *request, answer *store.Answer) {
	a, acquire := c.attempt, &c.acquire
	first := r.sent
	if a.sends > 1 {
		first = min(first, a.first) // any copy may be the one that was granted
	}
	deadline := c.Policy.Until(first, r.sent, *answer)
	if e.now >= deadline.Add(-c.Policy.Notice) {
		c.unknown = errTooOld
		if a.newest == nil && a.queued == nil {
			c.next = renewal.After(e.now, e.pauseOf(c, PollMax))
		}
		e.setAcquireAlarm(c)
		return
	}
	e.drop(a)
	q := acquire.queue
	acquire.period = false
	e.unlink(c)
	l := e.newLease(c, a.request, answer, deadline, e.now)
	if q.holder != nil {
		// The store has just given that lease's key away.
		e.stepLease(q.holder, renewal.Doubted{})
	}
	q.holder = l
	c.Reply.Lease = l
	if acquire.unknown {
		// The call may ask once more, above a guard's token.
		acquire.unknown = false
		e.event(Event{Kind: Resolved, Key: l.Key, Verb: tenure.Acquire, Outcome: OutcomeOK})
	}
	q.refusal, q.at, q.asked = nil, e.now, r.sent
	e.tellOverdue(q)
	if c.Guarded {
		c.state = raising
		e.alarms.set(&c.alarm, renewal.Never)
		e.ready.Raise = append(e.ready.Raise, c)
	} else {
		e.acquired(c)
	}
	e.advanceQueue(q)
}

// acquired replies with the lease.
func (e *Engine) acquired(c *Call) {
	rec := c.Reply.Lease.Record
	e.event(Event{
		Kind: Acquired, Key: rec.Key, Token: rec.Token, Cause: rec.Cause, TTL: c.Policy.TTL, Wait: e.now.Sub(c.began),
	})
	e.reply(c, nil)
}

// Raised says how raising the fence for an acquire ended. If a guard remembers
// a token that the store has forgotten, above is that token. Then the call asks
// once more, for a higher one.
func (e *Engine) Raised(now clock.Instant, c *Call, above fence.Token, err error) {
	e.advance(now)
	if c.state != raising {
		return
	}
	if err == nil {
		e.acquired(c)
		return
	}
	l := c.Reply.Lease
	c.Reply = Reply{}
	a := &c.acquire
	if above == 0 || a.above || a.abandoned || e.closed != nil {
		e.giveBack(l, c, err)
		return
	}
	c.state, a.above, c.Request.Above = open, true, above
	c.attempt = nil
	e.rejoin(c)
	// Start again as a new call. giveBack passes the key on to it.
	a.started, a.watching, a.unknown, c.unknown = false, false, false, nil
	e.giveBack(l, nil, nil)
	e.advanceQueue(a.queue)
}

// Above combines the outcomes of raising a fence, one for each guard, nil where
// the fence is up. It returns the first failure. If every failed guard only
// remembers a newer token, above is the newest of those: an acquire above it
// may succeed.
//
// Above does not follow a token so high that guards refuse the next one: that
// would use up the tokens of the key. wall is the calendar's time.
func Above(outcomes []error, wall time.Time) (above fence.Token, failure error) {
	for _, err := range outcomes {
		var stale *fence.StaleError
		var refused *fence.RefusedError
		switch {
		case err == nil:
			continue
		case errors.As(err, &stale) && fence.CanFollow(stale.Newest.Token, wall):
			above = max(above, stale.Newest.Token)
		case errors.As(err, &refused) && errors.Is(err, fence.ErrCollision):
			above = max(above, refused.Mark.Token)
		default: // another token would not help here
			return 0, err
		}
		if failure == nil {
			failure = err
		}
	}
	return above, failure
}

// abandonAcquire answers an acquire whose caller has left.
func (e *Engine) abandonAcquire(c *Call, why error) {
	key, a := c.Request.Key, c.attempt
	var err error
	switch {
	case !c.acquire.started:
		err = fmt.Errorf("waiting for %q: %w", key, why)
	case a == nil:
		err = fmt.Errorf("acquire %q: %w", key, why)
	default:
		unsent := a.queued != nil && a.doubt == 0
		left := e.leave(a)
		switch {
		case unsent && c.acquire.refused == nil:
			err = fmt.Errorf("acquire %q: %w; %w", key, why, errUnsent)
		case left:
			err = fmt.Errorf("acquire %q: %w; %w", key, why, errPending)
		case c.acquire.refused != nil:
			err = fmt.Errorf("acquire %q: %w (%w)", key, why, c.acquire.refused)
		case c.unknown != nil:
			err = fmt.Errorf("acquire %q: %w (%w)", key, why, c.unknown)
		default:
			err = fmt.Errorf("acquire %q: %w", key, why)
		}
	}
	e.leaveQueue(c, err)
}
