package engine

import (
	"container/heap"
	"errors"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// maxAlone bounds how many renewals of one batch go alone the next time.
const maxAlone = 8

// Lease is a grant that the engine keeps. Its fields are read under the same
// lock as the engine.
type Lease struct {
	tenure.Deed
	// Tag belongs to the user.
	Tag any
	// Record is the newest that the store has confirmed.
	Record tenure.Record
	// Since is when the key was granted, perhaps to the lease that this one
	// resumes.
	Since clock.Instant
	// Lost says why the lease is over. It is nil while the lease lives.
	Lost *Lost
	// Given says that the caller has wanted to give the lease back.
	Given bool

	terms    keep.Terms
	keeper   keep.Keeper
	index    int       // in the heap, plus one; 0 when it is not kept
	recordAt time.Time // the store's time when Record was confirmed
	queued   *request  // the renewal that waits in the outbox
	alone    bool      // the next renewal goes in a batch of its own

	releasing *Call   // the release that asks the store
	releases  []*Call // and those that wait for it
	finished  bool    // the store has decided about a release: see outcome
	outcome   Reply
}

// Lost says why a lease is over.
type Lost struct {
	Loss keep.Loss
	Err  error // the store's answer that led to it, if there was one
}

// Deadline is the local deadline.
func (l *Lease) Deadline() clock.Instant { return l.keeper.Deadline() }

// Alive reports whether the lease has not ended, by a clock that the engine may
// not have seen yet.
func (l *Lease) Alive(now clock.Instant) bool { return l.Lost == nil && now < l.keeper.Ends() }

// Refused is why the store did not take the lease back, or nil if it did, has
// not been asked or has not answered.
func (l *Lease) Refused() *Lost { return l.outcome.Lost }

// newLease begins to keep a grant.
func (e *Engine) newLease(c *Call, req *tenure.Request, granted *store.Answer, deadline, since clock.Instant) *Lease {
	l := &Lease{
		Deed:   tenure.Deed{Key: req.Key, Token: granted.Record.Token, Secret: req.Secret, TTL: c.Terms.TTL},
		Record: granted.Record, recordAt: granted.Now, Since: since, terms: c.Terms,
		keeper: keep.NewKeeper(c.Terms, deadline, since, e.now, granted.Record, e.o.Random()),
	}
	heap.Push(&e.leases, l)
	e.watchActsSoon()
	if e.closed != nil {
		e.stepLease(l, keep.Ended{Loss: keep.Closed})
	}
	return l
}

// Check ends a lease whose time is over, if no Tick has noticed yet.
func (e *Engine) Check(now clock.Instant, l *Lease) {
	e.advance(now)
	if l.Lost == nil && e.now >= l.keeper.Ends() {
		e.stepLease(l, keep.Tick{Jitter: e.o.Random()})
	}
}

// Looked brings the record of a stalled lease, and the store's time: another
// process may have reported progress.
func (e *Engine) Looked(now clock.Instant, l *Lease, rec tenure.Record, at time.Time) {
	e.advance(now)
	if rec.Grant == l.Record.Grant {
		e.stepLease(l, keep.Looked{Record: rec, Now: at})
	}
}

// renewDue renews the leases whose time has come, and those that are due soon:
// they share a batch, and stay together from then on.
func (e *Engine) renewDue() {
	if len(e.leases) == 0 || e.leases[0].keeper.Wake() > e.now {
		return
	}
	jitter := e.o.Random()
	for len(e.leases) > 0 && e.leases[0].keeper.Early() <= e.now {
		e.stepLease(e.leases[0], keep.Tick{Jitter: jitter})
	}
}

// renewed takes the answers to the renewals in a batch. A renewal that the store
// skipped, while it answered others, goes alone the next time.
func (e *Engine) renewed(b *Batch, answers []store.Answer) {
	renewals, skipped := 0, 0
	for i, r := range b.requests {
		if r.lease != nil {
			renewals++
			if !known(answers[i].Err) {
				skipped++
			}
		}
	}
	single := skipped < renewals && skipped <= maxAlone
	for i, r := range b.requests {
		if l := r.lease; l != nil {
			l.alone = !known(answers[i].Err) && (single || l.alone)
			l.confirm(&answers[i])
			e.stepLease(l, keep.Answered{Sent: r.sent, Answer: answers[i]})
		}
	}
}

// stepLease tells a lease of an event, and does what it then wants.
func (e *Engine) stepLease(l *Lease, event keep.Event) {
	o := l.keeper.Step(event, e.now)
	switch {
	case o.Lost != "":
		e.end(l, o)
	case o.Renew:
		e.renew(l, o.Again)
	case o.Look:
		e.ready.Look = append(e.ready.Look, l)
	}
	if l.index > 0 {
		heap.Fix(&e.leases, l.index-1)
	}
	if o.Renewed {
		e.event(Event{Kind: Renewed, Key: l.Key, Token: l.Token, TTL: l.TTL, Margin: o.Margin, Idle: o.Idle})
	}
	if o.Failures > 0 {
		e.event(Event{
			Kind: RenewFailed, Key: l.Key, Token: l.Token, Failures: o.Failures,
			Margin: l.keeper.Deadline().Sub(e.now), Err: o.Err,
		})
	}
	if o.Lost != "" && o.Lost != keep.Released {
		e.event(Event{Kind: LeaseLost, Key: l.Key, Token: l.Token, Loss: o.Lost, Err: o.Err})
	}
}

// renew queues a renewal, unless one waits already.
func (e *Engine) renew(l *Lease, before bool) {
	if l.queued != nil {
		return
	}
	at := fresh
	switch {
	case l.alone:
		at = alone
	case before:
		at = again
	}
	l.queued = &request{
		Request: &tenure.Request{Verb: tenure.Renew, Key: l.Key, Secret: l.Secret}, lease: l, lane: at,
	}
	e.outbox.add(l.queued)
}

// end ends a lease. If it was not given back, the next call may ask for its key.
func (e *Engine) end(l *Lease, o keep.Orders) {
	l.Lost = &Lost{Loss: o.Lost, Err: o.Err}
	e.ready.Over = append(e.ready.Over, l)
	if l.index > 0 {
		heap.Remove(&e.leases, l.index-1)
	}
	if len(e.leases) == 0 {
		e.unwatchActs()
	}
	if l.queued != nil {
		e.outbox.remove(l.queued)
		l.queued = nil
	}
	if o.Lost != keep.Released || o.Err != nil {
		e.vacate(l)
	}
}

// confirm keeps the newest record. Answers may overtake each other, and need
// not bring the history.
func (l *Lease) confirm(a *store.Answer) {
	if a.Err != nil || a.Now.Before(l.recordAt) || a.Record.Grant != l.Record.Grant {
		return
	}
	history := l.Record.History
	l.Record, l.recordAt = a.Record, a.Now
	if l.Record.History == nil {
		l.Record.History = history
	}
}

// asHeld is the lease as another call for its key sees it.
func (l *Lease) asHeld(now clock.Instant) tenure.HeldError {
	left := l.keeper.Deadline().Sub(now) + l.terms.Margin()
	return tenure.HeldError{
		Record: l.Record, Why: tenure.WhyHeld, Until: l.Record.Deadline, Now: l.Record.Deadline.Add(-left),
	}
}

// lossOf is the loss that the store's refusal means, or nil for other errors.
func lossOf(err error) *Lost {
	var refusal *tenure.NotOwnedError
	if !errors.As(err, &refusal) {
		return nil
	}
	return &Lost{Loss: keep.LossOf(refusal), Err: err}
}

// leaseHeap orders leases by when they must be looked at.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].keeper.Wake() < h[j].keeper.Wake() }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push is for package heap.
func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.index = len(*h) + 1
	*h = append(*h, l)
}

// Pop is for package heap.
func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.index = 0
	return l
}
