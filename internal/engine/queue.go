package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// How often a call asks for a key that is held.
const (
	// PollFirst is the first pause. Every further one is twice as long.
	PollFirst = 25 * time.Millisecond
	// PollMax is the longest pause without hints.
	PollMax = time.Second
	// PollHinted is the first pause while hints come, and PollWatched the
	// longest: then polls are for hints that are lost.
	PollHinted  = 250 * time.Millisecond
	PollWatched = 5 * time.Second
	// PollSettled is the longest pause while nobody holds the key, and time
	// must pass or an operator must free it.
	PollSettled = 10 * time.Second
)

// Courtesy is how long a key is left to other clients that wait for it: time
// for a hint to reach them, and for them to ask.
const Courtesy = time.Millisecond

// maxPassed bounds how often in a row a key is passed on within a client. Then
// the key is free for as long as a call takes, and other clients can compete:
// not every store can tell that they wait.
const maxPassed = 16

// queue holds the acquires of this client that wait for one key.
type queue struct {
	key         string
	first, last *Call
	overdue     int    // calls behind the first whose patience has ended
	holder      *Lease // this client's lease on the key
	passed      int    // how often in a row the key was passed on
	yield       bool   // another client waits: the next call lets it go first
	watch       watch
	alarm       alarm

	// Why the key cannot be had: what the store last said, or else the holder.
	refusal *tenure.HeldError
	every   time.Duration // the period of the call that was refused
	at      clock.Instant // when it was heard
	asked   clock.Instant // when the request was sent
}

// watch is the state of the store's hints about a key.
type watch int

const (
	unwatched watch = iota
	opening         // Ready.Watch was given out
	watched         // hints come
	never           // the store gives none
)

// Hint is what a store announces about a key.
type Hint int

// The hints.
const (
	// Changed says that the key may have changed.
	Changed Hint = iota
	// Watched says that hints come from now on. What happened before they came
	// was not announced.
	Watched
	// WatchedSince is Watched, and a change since the key was last refused
	// will be announced, too.
	WatchedSince
	// Broken says that no more hints come.
	Broken
	// Unsupported says that hints will never come.
	Unsupported
	// Acted says that an operator has acted on the key: a lease on it may be
	// over.
	Acted
)

// Acts stands for all keys where hints are begun and ended: it asks for Acted.
const Acts = ""

// Hint takes an announcement of the store. err is why hints do not come any
// more.
func (e *Engine) Hint(now clock.Instant, key string, h Hint, err error) {
	e.advance(now)
	if key == Acts {
		e.actsHint(h, err)
		return
	}
	q := e.queues[key]
	if q != nil && q.holder != nil && h == Acted {
		e.stepLease(q.holder, keep.Doubted{})
		return
	}
	if q == nil || q.first == nil || h == Acted {
		return
	}
	c := q.head()
	a := &c.acquire
	switch h {
	case Changed:
		a.woken, a.poll = true, PollFirst
	case Watched:
		q.watch, a.woken = watched, true
	case WatchedSince:
		q.watch = watched
		if c.attempt != nil && c.attempt.sends == 0 && !a.woken { // it was refused
			c.next = min(keep.After(e.now, e.pauseOf(c, PollWatched)), a.due)
		}
	case Broken:
		q.watch = unwatched
		c.next = min(c.next, keep.After(e.now, e.pauseOf(c, PollMax)))
		e.event(Event{Kind: Unwatched, Key: key, Err: err})
	case Unsupported:
		q.watch = never
	}
	e.tryAcquire(c)
}

// join puts an acquire at the end of its key's queue.
func (e *Engine) join(c *Call) {
	a, q := &c.acquire, e.queueOf(c.Request.Key)
	a.queue, a.end = q, keep.After(e.now, c.WaitFor)
	a.before = q.last
	if q.last == nil {
		q.first = c
	} else {
		q.last.acquire.after = c
	}
	q.last = c
	if q.head() == c {
		e.start(c)
		return
	}
	e.standBy(c)
}

// queueOf is the queue of a key.
func (e *Engine) queueOf(key string) *queue {
	q := e.queues[key]
	if q == nil {
		q = &queue{key: key}
		q.alarm.owner = q
		e.queues[key] = q
	}
	return q
}

// head is the call that asks for the key: the first for which no period has to
// end. If there is none it is the first of all, and nil if nobody waits.
func (q *queue) head() *Call {
	var period time.Duration // of a call before
	for c := q.first; c != nil; c = c.acquire.after {
		if c.acquire.period {
			period = c.Request.Every
		} else if period == 0 || c.Request.Every != period {
			return c
		}
	}
	return q.first
}

// rejoin puts an acquire at the front of its key's queue again. That may be
// another queue by now: the lease that it was granted may be over.
func (e *Engine) rejoin(c *Call) {
	q := e.queueOf(c.Request.Key)
	c.acquire.queue, c.acquire.after = q, q.first
	if q.first == nil {
		q.last = c
	} else {
		q.first.acquire.before = c
	}
	q.first = c
}

// unlink takes a call out of its queue.
func (e *Engine) unlink(c *Call) {
	a := &c.acquire
	q := a.queue
	if a.before == nil {
		q.first = a.after
	} else {
		a.before.acquire.after = a.after
	}
	if a.after == nil {
		q.last = a.before
	} else {
		a.after.acquire.before = a.before
	}
	a.before, a.after = nil, nil
	if a.overdue {
		a.overdue = false
		q.overdue--
	}
}

// advanceQueue lets the head start, if it has not yet, and forgets a queue that
// nobody needs.
func (e *Engine) advanceQueue(q *queue) {
	if c := q.head(); c != nil && !c.acquire.started {
		e.start(c)
	}
	e.tidy(q)
}

// tidy forgets a queue that nobody needs. A queue that yields is kept for a
// moment: a call that comes at once must let others go first.
func (e *Engine) tidy(q *queue) {
	if q.first != nil {
		return
	}
	if q.watch == opening || q.watch == watched {
		e.ready.Unwatch = append(e.ready.Unwatch, q.key)
		q.watch = unwatched
	}
	switch {
	case q.holder != nil || e.queues[q.key] != q:
	case q.yield:
		if q.alarm.index == 0 {
			e.alarms.set(&q.alarm, keep.After(e.now, Courtesy))
		}
	default:
		e.alarms.set(&q.alarm, keep.Never)
		delete(e.queues, q.key)
	}
}

// standBy lets a call behind the first wait for its turn. When its patience
// ends, it learns what the store tells the first: that the key is held is as
// true for it. The news must be as new as the call.
func (e *Engine) standBy(c *Call) {
	a := &c.acquire
	q := a.queue
	if e.now < a.end {
		if a.end < keep.Never {
			e.alarms.set(&c.alarm, a.end)
		}
		return
	}
	if !a.overdue {
		a.overdue = true
		q.overdue++
		c.limit = keep.After(e.now, hungAfter)
		if c.WaitFor == 0 {
			c.limit = keep.After(e.now, e.o.CallTimeout)
		}
	}
	switch {
	case e.learn(c):
	case e.now >= c.limit:
		e.leaveQueue(c, store.Unknown(fmt.Errorf(
			"waiting for %q: the store has not told the contender before this one whether it is held; check that it can be reached", q.key)))
	default:
		e.alarms.set(&c.alarm, c.limit)
		if first := q.head(); !first.asksSince(c.began) {
			first.acquire.woken = true
			e.tryAcquire(first)
		}
	}
}

// asksSince reports whether an answer will come to a request that is sent at
// or after an instant.
func (c *Call) asksSince(at clock.Instant) bool {
	a := c.attempt
	return a != nil && (a.queued != nil || a.newest != nil && a.newest.sent >= at)
}

// learn refuses a call whose patience has ended, if the store has refused the
// key since the call began.
func (e *Engine) learn(c *Call) bool {
	q := c.acquire.queue
	if q.asked < c.began {
		return false
	}
	var held tenure.HeldError
	switch {
	case q.refusal != nil && q.refusal.Why == tenure.WhyPeriod && q.every != c.Request.Every:
		return false // another period than the call's
	case q.refusal != nil:
		held = *q.refusal
	case q.holder != nil:
		held = q.holder.asHeld(q.at)
	default:
		return false
	}
	held.Now = held.Now.Add(min(e.now.Sub(q.at), held.Remaining()))
	e.dismiss(c, &held)
	return true
}

// leaveQueue replies to a call that was not granted, and lets the next start.
func (e *Engine) leaveQueue(c *Call, err error) {
	e.dismiss(c, err)
	e.advanceQueue(c.acquire.queue)
}

// dismiss replies to a call that was not granted.
func (e *Engine) dismiss(c *Call, err error) {
	e.unlink(c)
	if errors.Is(err, tenure.ErrHeld) {
		e.event(Event{Kind: Refused, Key: c.Request.Key, Wait: e.now.Sub(c.began), Err: err})
	}
	e.reply(c, err)
}

// tellOverdue lets the calls behind the first learn that the key cannot be had.
func (e *Engine) tellOverdue(q *queue) {
	if q.overdue == 0 {
		return
	}
	for c := q.first; c != nil; {
		next := c.acquire.after
		switch {
		case !c.acquire.overdue || e.learn(c):
		case q.refusal != nil && c.Request.Every != q.every && q.refusal.Why == tenure.WhyPeriod:
			e.start(c) // the head asks for another period: this call asks for its own
		default:
			q.head().acquire.woken = true // the news is older than this call
		}
		c = next
	}
}

// vacate lets the first call ask, because a lease of this client on the key has
// ended.
func (e *Engine) vacate(l *Lease) {
	q := e.queues[l.Key]
	if q == nil || q.holder != nil && q.holder != l {
		return
	}
	if q.holder == l {
		q.holder, q.refusal = nil, nil
	}
	if c := q.head(); c != nil && c.acquire.started {
		c.next = e.now
		c.limit = max(c.limit, keep.After(e.now, e.o.CallTimeout))
		if q.yield && c.attempt.idle() {
			e.letOthersFirst(c)
		} else {
			c.acquire.woken = true
		}
		e.tryAcquire(c)
	}
	e.advanceQueue(q)
}

// letOthersFirst delays a call for a moment, in which a hint can reach other
// clients.
func (e *Engine) letOthersFirst(c *Call) {
	c.acquire.queue.yield = false
	c.acquire.earliest = min(keep.After(e.now, Courtesy), c.acquire.end)
	c.next = c.acquire.earliest
}

// pass lets the first call ask in the same batch in which a lease on its key is
// released. It is not done while another client waits.
func (e *Engine) pass(l *Lease) {
	q := e.queues[l.Key]
	if q == nil || q.holder != l || q.first == nil {
		return
	}
	c := q.head()
	if q.yield || q.passed == maxPassed {
		q.passed = 0
		return
	}
	if !c.attempt.idle() {
		return // it asks already
	}
	q.passed++
	if !c.acquire.started {
		e.start(c)
	}
	c.next, c.limit = e.now, max(c.limit, keep.After(e.now, e.o.CallTimeout))
	e.tryAcquire(c)
}

// pauseOf is the time until an acquire asks again, and doubles the one after
// it. While hints come, asking is only for hints that are lost.
func (e *Engine) pauseOf(c *Call, most time.Duration) time.Duration {
	a := &c.acquire
	if a.queue.watch == watched {
		a.poll = max(a.poll, PollHinted)
	}
	d := min(a.poll, most)
	a.poll = min(2*a.poll, PollSettled)
	return keep.Spread(d, 0.75, 1, e.o.Random())
}
