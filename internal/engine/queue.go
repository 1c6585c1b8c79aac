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

// These say how often a call asks for a key that is held.
const (
	// PollFirst is the first pause. Every further one is twice as long.
	PollFirst = 25 * time.Millisecond
	// PollMax is the longest pause without hints.
	PollMax = time.Second
	// PollHinted is the first pause while hints come, and PollWatched the
	// longest. Then polls only make up for lost hints.
	PollHinted  = 250 * time.Millisecond
	PollWatched = 5 * time.Second
	// PollSettled is the longest pause while nobody holds the key, but time
	// must pass or an operator must free it.
	PollSettled = 10 * time.Second
)

// Courtesy is how long a client leaves a key to other clients that wait for it.
// A hint must reach them, and they must ask.
const Courtesy = time.Millisecond

// Contended is how long a key counts as contended after other clients were
// seen to wait for it.
const Contended = time.Second

// maxPassed limits how often in a row a client passes a key on within itself.
// Then the key is free for as long as a call takes, and other clients can
// compete. Not every store can tell that they wait.
const maxPassed = 16

// queue holds the acquires of this client that wait for one key.
type queue struct {
	key         string
	first, last *Call
	overdue     int    // calls behind the head whose WaitFor has ended
	holder      *Lease // this client's lease on the key
	passed      int    // how often in a row the key was passed on
	yield       bool   // another client waits: the next call lets it go first
	contended   bool   // other clients have waited a short while ago
	watch       watch
	alarm       alarm

	// Why the key cannot be had: the store's last refusal, or else the holder.
	refusal *tenure.HeldError
	every   time.Duration // the period of the call that was refused
	at      clock.Instant // when the answer came
	asked   clock.Instant // when the request was sent
}

// watch is the state of the store's hints about a key.
type watch int

const (
	unwatched watch = iota
	opening         // Ready.Watch has asked for them
	watched         // hints come
	never           // the store gives none
)

// Hint is an announcement of the store about a key.
type Hint int

// The hints.
const (
	// Changed says that the key may have changed.
	Changed Hint = iota
	// Watched says that hints come from now on. Earlier changes were not
	// announced.
	Watched
	// Broken says that no more hints come.
	Broken
	// Unsupported says that hints will never come.
	Unsupported
	// Acted says that an operator has acted on the key. A lease on it may be
	// over.
	Acted
)

// Acts takes the place of a key in Ready.Watch, Ready.Unwatch and Hint. It
// stands for hints about operators' acts on all keys.
const Acts = ""

// Hint takes an announcement of the store. err says why hints no longer come.
func (e *Engine) Hint(now clock.Instant, key string, h Hint, err error) {
	e.advance(now)
	if key == Acts {
		e.actsHint(h, err)
		return
	}
	q := e.queues[key]
	if q != nil && q.holder != nil && h == Acted {
		e.stepLease(q.holder, renewal.Doubted{})
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
	case Broken:
		q.watch = unwatched
		c.next = min(c.next, renewal.After(e.now, e.pauseOf(c, PollMax)))
		e.event(Event{Kind: Unwatched, Key: key, Err: err})
	case Unsupported:
		q.watch = never
	}
	e.tryAcquire(c)
}

// join puts an acquire at the end of its key's queue.
func (e *Engine) join(c *Call) {
	a, q := &c.acquire, e.queueOf(c.Request.Key)
	a.queue, a.end = q, renewal.After(e.now, c.WaitFor)
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

// queueOf returns the queue of a key. It makes one if there is none.
func (e *Engine) queueOf(key string) *queue {
	q := e.queues[key]
	if q == nil {
		q = &queue{key: key}
		q.alarm.owner = q
		e.queues[key] = q
	}
	return q
}

// head returns the call that asks for the key: the first call whose period does
// not keep it waiting. If there is none, it is the first call, and nil if
// nobody waits.
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
// another queue by now, if the lease that the call was granted has ended.
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

// Holds reports whether this client keeps the lease on a key with this token.
func (e *Engine) Holds(key string, token fence.Token) bool {
	q := e.queues[key]
	return q != nil && q.holder != nil && q.holder.Token == token
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

// advanceQueue starts the head if it has not started, and forgets a queue that
// nobody needs.
func (e *Engine) advanceQueue(q *queue) {
	if c := q.head(); c != nil && !c.acquire.started {
		e.start(c)
	}
	e.tidy(q)
}

// tidy forgets a queue that nobody needs. A queue that yields is kept for a
// moment, because the next call must let other clients go first. A contended
// one is kept for a little longer, because the next call asks for hints first.
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
	case q.yield || q.contended:
		kept := Contended
		if q.yield {
			kept = Courtesy // and then for Contended
		}
		if q.alarm.index == 0 {
			e.alarms.set(&q.alarm, renewal.After(e.now, kept))
		}
	default:
		e.alarms.set(&q.alarm, renewal.Never)
		delete(e.queues, q.key)
	}
}

// watchFirst asks for hints about a contended key before a call asks for the
// key. The store will most likely refuse the call, and puts it into its queue
// at once if hints come. watchFirst reports whether it asked for hints.
func (e *Engine) watchFirst(c *Call) bool {
	return c.acquire.queue.contended && e.now < c.acquire.end && e.askForHints(c)
}

// askForHints asks for hints about a call's key, once, if the store gives any.
// It reports whether it did.
func (e *Engine) askForHints(c *Call) bool {
	a := &c.acquire
	if !e.o.Watches || a.queue.watch != unwatched || a.watching {
		return false
	}
	a.queue.watch, a.watching = opening, true
	e.ready.Watch = append(e.ready.Watch, a.queue.key)
	return true
}

// standBy lets a call behind the head wait for its turn. When its WaitFor ends,
// it gets the head's answer: if the key is held for the head, it is held for
// this call. The answer must be newer than the call.
func (e *Engine) standBy(c *Call) {
	a := &c.acquire
	q := a.queue
	if e.now < a.end {
		if a.end < renewal.Never {
			e.alarms.set(&c.alarm, a.end)
		}
		return
	}
	if !a.overdue {
		a.overdue = true
		q.overdue++
		c.limit = renewal.After(e.now, hungAfter)
		if c.WaitFor == 0 {
			c.limit = renewal.After(e.now, e.o.CallTimeout)
		}
	}
	switch {
	case e.learn(c):
	case e.now >= c.limit:
		e.leaveQueue(c, store.Unknown(fmt.Errorf("waiting for %q: the store has not told the contender "+
			"before this one whether it is held; check that it can be reached", q.key)))
	default:
		e.alarms.set(&c.alarm, c.limit)
		if first := q.head(); !first.asksSince(c.began) {
			first.acquire.woken = true
			e.tryAcquire(first)
		}
	}
}

// asksSince reports whether the call expects an answer to a request that was
// sent, or will be sent, at or after at.
func (c *Call) asksSince(at clock.Instant) bool {
	a := c.attempt
	return a != nil && (a.queued != nil || a.newest != nil && a.newest.sent >= at)
}

// learn refuses a call whose WaitFor has ended, if the store has refused the
// key since the call began. It reports whether it did.
func (e *Engine) learn(c *Call) bool {
	q := c.acquire.queue
	if q.asked < c.began {
		return false
	}
	var held tenure.HeldError
	switch {
	case q.refusal != nil && q.refusal.Why == tenure.WhyPeriod && q.every != c.Request.Every:
		return false // that period is not the call's
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

// leaveQueue replies to a call that was not granted, and starts the next one.
func (e *Engine) leaveQueue(c *Call, err error) {
	e.dismiss(c, err)
	e.advanceQueue(c.acquire.queue)
}

// dismiss replies to a call that was not granted.
func (e *Engine) dismiss(c *Call, err error) {
	e.unlink(c)
	if errors.Is(err, tenure.ErrHeld) && c.Seen == nil { // with Seen, the caller comes back
		e.event(Event{Kind: Refused, Key: c.Request.Key, Wait: e.now.Sub(c.began), Err: err})
	}
	e.reply(c, err)
}

// tellOverdue refuses the calls behind the head whose WaitFor has ended.
func (e *Engine) tellOverdue(q *queue) {
	if q.overdue == 0 {
		return
	}
	for c := q.first; c != nil; {
		next := c.acquire.after
		switch {
		case !c.acquire.overdue || e.learn(c):
		case q.refusal != nil && c.Request.Every != q.every && q.refusal.Why == tenure.WhyPeriod:
			// The head was refused for its own period: this call asks for
			// itself.
			e.start(c)
		default:
			// The refusal is older than this call: the head must ask again.
			q.head().acquire.woken = true
		}
		c = next
	}
}

// vacate lets the head ask, because a lease of this client on the key has
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
		c.limit = max(c.limit, renewal.After(e.now, e.o.CallTimeout))
		if q.yield && c.attempt.idle() {
			e.letOthersFirst(c)
		} else {
			c.acquire.woken = true
		}
		e.tryAcquire(c)
	}
	e.advanceQueue(q)
}

// letOthersFirst delays a call for a moment, so that a hint can reach other
// clients first.
func (e *Engine) letOthersFirst(c *Call) {
	c.acquire.queue.yield = false
	c.acquire.earliest = min(renewal.After(e.now, Courtesy), c.acquire.end)
	c.next = c.acquire.earliest
}

// pass lets the head ask in the same batch in which a lease on its key is
// released. It does not while another client waits.
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
		return // it already asks
	}
	q.passed++
	if !c.acquire.started {
		e.start(c)
	}
	c.next, c.limit = e.now, max(c.limit, renewal.After(e.now, e.o.CallTimeout))
	e.tryAcquire(c)
}

// pauseOf returns the time until an acquire asks again, and doubles the next
// pause. While hints come, the pauses are longer: polls only make up for lost
// hints.
func (e *Engine) pauseOf(c *Call, most time.Duration) time.Duration {
	a := &c.acquire
	if a.queue.watch == watched {
		a.poll = max(a.poll, PollHinted)
	}
	d := min(a.poll, most)
	a.poll = min(2*a.poll, PollSettled)
	return renewal.Spread(d, 0.75, 1, e.o.Random())
}
