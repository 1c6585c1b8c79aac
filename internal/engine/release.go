package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/tenure"
)

// releaseBound is how long the engine tries to release a lease on its own.
const releaseBound = 2 * time.Second

// errGrantedAnew refuses to resume a lease that the store had forgotten. The
// store then granted a late copy of its request. That is another term, and its
// token may be lower.
var errGrantedAnew = errors.New("the store has forgotten this lease and granted its request anew, " +
	"with another token; stop this work and acquire again")

// beginOfLease begins a call that is about a lease.
func (e *Engine) beginOfLease(c *Call) {
	l := c.Lease
	switch c.Request.Verb {
	case tenure.Release:
		l.Given = true
		e.release(c)
	case tenure.Report, tenure.Checkpoint:
		e.progressed(l)
		e.ask(c)
	default: // a new TTL, or resume
		c.Policy = l.policy
		e.ask(c)
	}
}

// reports reports whether a request says that the work has made progress.
func reports(v tenure.Verb) bool { return v == tenure.Report || v == tenure.Checkpoint }

// Progressed says that the work of a lease has made progress, without a message
// to the store. A call that reports says so by itself.
func (e *Engine) Progressed(now clock.Instant, l *Lease) {
	e.advance(now)
	e.progressed(l)
}

func (e *Engine) progressed(l *Lease) {
	e.stepLease(l, renewal.Progressed{})
	e.event(Event{Kind: Reported, Key: l.Key, Token: l.Token})
}

// settled reports whether a release needs no call of the store.
func (l *Lease) settled() bool {
	if l == nil || l.finished || l.Lost == nil {
		return l != nil && l.finished
	}
	switch l.Lost.Loss {
	case renewal.Superseded, renewal.TakenOver, renewal.Closed:
		return true
	}
	return false
}

// release ends a lease and asks the store to take it back. Only one call asks
// at a time. Others that release the same lease share its outcome.
func (e *Engine) release(c *Call) {
	l := c.Lease
	switch {
	case l.finished:
		c.Reply = l.outcome
		e.reply(c, l.outcome.Err)
		return
	case l.releasing != nil:
		c.limit = eventually
		if c.Bound > 0 {
			c.limit = renewal.After(e.now, c.Bound)
		}
		e.alarms.set(&c.alarm, c.limit)
		l.releases = append(l.releases, c)
		return
	}
	l.releasing = c
	e.stepLease(l, renewal.Ended{Loss: renewal.Released})
	if l.settled() { // there is nothing to release
		c.Reply.Lost = l.Lost
		e.releaseDone(c, l.Lost.Err)
		return
	}
	e.ask(c)
	e.pass(l)
}

// released takes the store's decision about a release.
func (e *Engine) released(c *Call) {
	l, err := c.Lease, c.Reply.Answer.Err
	if q := e.queues[l.Key]; q != nil {
		q.yield = c.Reply.Answer.Awaited
		q.contended = q.yield
	}
	if err == nil {
		e.event(Event{
			Kind: Released, Key: l.Key, Token: l.Token, Failed: c.Request.Failed, Held: e.now.Sub(l.Since),
		})
	} else if c.Reply.Lost = lossOf(err); c.Reply.Lost != nil && l.Lost.Loss == renewal.Released {
		e.event(Event{Kind: LeaseLost, Key: l.Key, Token: l.Token, Loss: c.Reply.Lost.Loss, Err: err})
	}
	e.releaseDone(c, err)
}

// releaseDone replies to every call that releases the lease.
func (e *Engine) releaseDone(c *Call, err error) {
	l := c.Lease
	l.finished, l.releasing = true, nil
	l.outcome = Reply{Err: err, Lost: c.Reply.Lost}
	waiting := l.releases
	l.releases = nil
	e.reply(c, err)
	for _, other := range waiting {
		other.Reply = l.outcome
		e.reply(other, err)
	}
	e.vacate(l)
}

// releaseLeft replies to a release whose outcome is unknown. If another call
// waits to release the lease, it tries next.
func (e *Engine) releaseLeft(c *Call, err error) {
	l := c.Lease
	l.releasing = nil
	e.event(Event{Kind: ReleaseLeft, Key: l.Key, Token: l.Token, Err: err})
	e.reply(c, err)
	e.vacate(l)
	if len(l.releases) > 0 {
		next := l.releases[0]
		l.releases = l.releases[1:]
		e.release(next)
	}
}

// giveBack releases, as failed, a lease that no caller has got. Then it replies
// to the call that wanted the lease, if there is one.
func (e *Engine) giveBack(l *Lease, then *Call, err error) {
	c := &Call{
		Request: tenure.Request{Verb: tenure.Release, Key: l.Key, Secret: l.Secret, Failed: true},
		Lease:   l, Bound: releaseBound, then: then, thenErr: err,
	}
	e.active++
	c.began, c.alarm.owner = e.now, c
	if then != nil { // it waits for nothing else
		then.state = raising
		e.alarms.set(&then.alarm, renewal.Never)
	}
	l.Given = true
	e.release(c)
}

// reported takes the store's decision about a report or a checkpoint.
func (e *Engine) reported(c *Call) {
	l, answer := c.Lease, c.Reply.Answer
	l.confirm(answer)
	if lost := lossOf(answer.Err); lost != nil {
		e.stepLease(l, renewal.Answered{Answer: *answer})
		c.Reply.Lost = l.Lost
	}
	e.reply(c, answer.Err)
}

// retimed takes the store's decision about a new TTL. The answer counts like
// that to any renewal. sent is when the answered copy was sent.
func (e *Engine) retimed(c *Call, sent clock.Instant) {
	l, answer := c.Lease, c.Reply.Answer
	l.confirm(answer)
	e.stepLease(l, renewal.Answered{Sent: sent, Answer: *answer})
	c.Reply.Lost = l.Lost // it may have ended meanwhile
	e.reply(c, answer.Err)
}

// resumed takes the store's decision about resuming a lease that was lost by
// time. sent is when the answered copy was sent.
func (e *Engine) resumed(c *Call, sent clock.Instant) {
	old, answer := c.Lease, c.Reply.Answer
	switch {
	case answer.Err != nil:
		c.Reply.Lost = lossOf(answer.Err)
		e.reply(c, answer.Err)
		return
	case answer.Record.Token != old.Token:
		c.Reply.Lost = &Lost{Loss: renewal.Superseded, Err: errGrantedAnew}
		e.giveBack(old, c, errGrantedAnew)
		return
	case !c.Policy.Fits(answer.Record.TTL):
		// Another process has set it. The lease may be that process's to keep.
		e.reply(c, fmt.Errorf("%w Notice %s: it may be at most half of the lease's TTL, which is %s now; "+
			"set a longer TTL", fence.ErrInvalid, c.Policy.Notice, answer.Record.TTL))
		return
	}
	a := c.attempt
	l := e.newLease(c, a.request, answer, c.Policy.Until(a.first, sent, *answer), old.Since)
	l.Signature = cmp.Or(l.Signature, old.Signature)
	e.Check(e.now, l) // ends it if MaxHold has passed or the answer took too long
	if l.Lost != nil {
		c.Reply.Lost = l.Lost
		e.giveBack(l, c, l.Lost.Err)
		return
	}
	c.Reply.Lease = l
	if q := e.queueOf(l.Key); q.holder == nil {
		q.holder = l
	}
	e.event(Event{Kind: Resumed, Key: l.Key, Token: l.Token, TTL: l.TTL})
	e.reply(c, nil)
}

func without(calls []*Call, c *Call) []*Call {
	return slices.DeleteFunc(calls, func(other *Call) bool { return other == c })
}
