package croft

import (
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
)

// mostPassed bounds how often in a row a key is passed on within a client. Then it is free for as long as a call takes, and whoever waits for it elsewhere
// can compete: not every store can tell that somebody does.
const mostPassed = 16

// pass lets the contender after a lease that is about to be released ask for the key in the same call: it returns its request, or nil if there is none or others have
// their turn. What the contender then makes of the answer is its own affair; it may just have left.
func (q *lines) pass(l *Lease) *submission {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.byKey[l.Key()]
	if ln == nil || ln.holder != l || ln.head == nil {
		return nil
	}
	if ln.others || ln.passed == mostPassed {
		ln.passed = 0
		return nil
	}
	ln.passed++
	p := ln.head
	p.pursuit, p.begun = q.c.newPursuit(p, q.c.clk.Now()), true
	_, request := p.pursuit.step(keep.Tick{})
	p.call()
	return request
}

// yield notes whether others wait for the key of a lease that was released: if so, the next contender here leaves it to them, or the one after it, if it was passed
// the key already.
func (q *lines) yield(l *Lease, awaited bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.byKey[l.Key()]; ln != nil {
		ln.others = awaited
	}
}

// pursuit is what the one before has begun on behalf of a contender, or a new one that begins now.
func (q *lines) pursuit(p *place, now clock.Instant) *pursuit {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !p.begun {
		p.pursuit = q.c.newPursuit(p, now)
	}
	p.begun = false
	return p.pursuit
}
