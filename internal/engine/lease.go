package engine

import (
	"container/heap"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// maxAlone limits how many renewals of one batch travel alone the next time.
const maxAlone = 8

// Lease is a grant that the engine keeps. Its fields are protected by the same
// lock as the engine.
type Lease struct {
	tenure.Deed
	// Tag belongs to the user.
	Tag any
	// Record is the newest record that the store has confirmed.
	Record tenure.Record
	// Since is when the key was granted. A resumed lease has the time of the
	// lease before it.
	Since clock.Instant
	// Lost says why the lease is over. It is nil while the lease lives.
	Lost *Lost
	// Given says that the caller has asked to release the lease.
	Given bool

	policy   renewal.Policy
	renewer  renewal.Renewer
	index    int       // in the heap, plus one; 0 if it is not kept
	recordAt time.Time // the store's time when Record was confirmed
	queued   *request  // the renewal that waits in the pipeline
	alone    bool      // the next renewal travels in a batch of its own

	releasing *Call   // the release that asks the store
	releases  []*Call // other releases, which wait for that one
	finished  bool    // the store has decided about a release: see outcome
	outcome   Reply
}

// Lost says why a lease is over.
type Lost struct {
	Loss renewal.Loss
	Err  error // the store's answer that led to it, if there was one
}

// Deadline returns the local deadline.
func (l *Lease) Deadline() clock.Instant { return l.renewer.Deadline() }

// Policy says how the lease is kept. Its TTL is the present one, that of the
// deed is the first.
func (l *Lease) Policy() renewal.Policy { return l.policy }

// Alive reports whether the lease lives at now. The engine may not have seen
// that time yet.
func (l *Lease) Alive(now clock.Instant) bool { return l.Lost == nil && now < l.renewer.Ends() }

// Refused says why the store refused the release. It is nil if the store
// accepted it, was not asked, or has not answered.
func (l *Lease) Refused() *Lost { return l.outcome.Lost }

var (
	errAlive = fmt.Errorf("%w resume: the lease is alive; there is nothing to resume", fence.ErrInvalid)
	errGave  = errors.New("its release was requested and may still take effect; acquire again")
)

// Resumable says why the lease cannot be resumed, by a loss or another error.
// Both are nil if it can: it was lost by time, and not released.
func (l *Lease) Resumable() (*Lost, error) {
	switch {
	case l.Lost == nil:
		return nil, errAlive
	case l.Lost.Loss != renewal.Expired && l.Lost.Loss != renewal.Unreachable:
		return l.Lost, nil
	case l.Given:
		return &Lost{Loss: renewal.Released, Err: errGave}, nil
	}
	return nil, nil
}

// Adopted returns a lease that another process was granted. For this client it
// is over until a call resumes it.
func Adopted(d tenure.Deed, p renewal.Policy, now clock.Instant) *Lease {
	const loss = renewal.Expired
	return &Lease{Deed: d, policy: p, renewer: renewal.Over(loss), Since: now, Lost: &Lost{Loss: loss}}
}

// newLease begins to keep a grant.
func (e *Engine) newLease(c *Call, req *tenure.Request, granted *store.Answer, deadline, since clock.Instant) *Lease {
	l := &Lease{
		Record: granted.Record, recordAt: granted.Now, Since: since, policy: c.Policy,
		renewer: renewal.NewRenewer(c.Policy, deadline, since, e.now, granted.Record, e.o.Random()),
	}
	l.policy.TTL = l.renewer.TTL()
	l.Deed = tenure.Deed{Key: req.Key, Token: granted.Record.Token, Secret: req.Secret, TTL: l.policy.TTL}
	l.Signature = granted.Signature
	heap.Push(&e.leases, l)
	e.watchActsSoon()
	if e.closed != nil {
		e.stepLease(l, renewal.Ended{Loss: renewal.Closed})
	}
	return l
}

// Check ends a lease whose time is over, if no Tick has noticed it yet.
func (e *Engine) Check(now clock.Instant, l *Lease) {
	e.advance(now)
	if l.Lost == nil && e.now >= l.renewer.Ends() {
		e.stepLease(l, renewal.Tick{Jitter: e.o.Random()})
	}
}

// Looked brings the record of a stalled lease and the store's time. Another
// process may have reported progress.
func (e *Engine) Looked(now clock.Instant, l *Lease, rec tenure.Record, at time.Time) {
	e.advance(now)
	if rec.Grant == l.Record.Grant {
		e.stepLease(l, renewal.Looked{Record: rec, Now: at})
	}
}

// renewDue renews the leases that are due, and those that are due soon. They
// share a batch, and stay together from then on.
func (e *Engine) renewDue() {
	if len(e.leases) == 0 || e.leases[0].renewer.Wake() > e.now {
		return
	}
	jitter := e.o.Random()
	for len(e.leases) > 0 && e.leases[0].renewer.Early() <= e.now {
		e.stepLease(e.leases[0], renewal.Tick{Jitter: jitter})
	}
}

// renewed takes the answers to the renewals in a batch. If the store answered
// some and not others, the unanswered ones travel alone the next time.
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
			e.stepLease(l, renewal.Answered{Sent: r.sent, Answer: answers[i]})
		}
	}
}

// stepLease gives an event to a lease's Renewer and carries out its orders.
func (e *Engine) stepLease(l *Lease, event renewal.Event) {
	o := l.renewer.Step(event, e.now)
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
		l.policy.TTL = l.renewer.TTL()
		e.event(Event{Kind: Renewed, Key: l.Key, Token: l.Token, TTL: l.policy.TTL, Margin: o.Margin, Idle: o.Idle})
	}
	if o.Failures > 0 {
		e.event(Event{
			Kind: RenewFailed, Key: l.Key, Token: l.Token, Failures: o.Failures,
			Margin: l.renewer.Deadline().Sub(e.now), Err: o.Err,
		})
	}
	if o.Lost != "" && o.Lost != renewal.Released {
		e.event(Event{Kind: LeaseLost, Key: l.Key, Token: l.Token, Loss: o.Lost, Err: o.Err})
	}
}

// renew puts a renewal into the pipeline, unless one waits there.
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
		Request: &tenure.Request{Verb: tenure.Renew, Key: l.Key, Secret: l.Secret, TTL: l.renewer.Asks()},
		lease:   l, class: at,
	}
	e.pipeline.add(l.queued)
}

// end ends a lease. Unless the caller is releasing it, the next call may ask
// for its key.
func (e *Engine) end(l *Lease, o renewal.Orders) {
	l.Lost = &Lost{Loss: o.Lost, Err: o.Err}
	e.ready.Over = append(e.ready.Over, l)
	if l.index > 0 {
		heap.Remove(&e.leases, l.index-1)
	}
	if len(e.leases) == 0 {
		e.unwatchActs()
	}
	if l.queued != nil {
		e.pipeline.remove(l.queued)
		l.queued = nil
	}
	if o.Lost != renewal.Released || o.Err != nil {
		e.vacate(l)
	}
}

// confirm keeps the newest record. Answers may overtake each other, and may
// lack the history.
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

// asHeld makes the refusal that another call for the lease's key gets.
func (l *Lease) asHeld(now clock.Instant) tenure.HeldError {
	left := l.renewer.Deadline().Sub(now) + l.policy.Margin()
	return tenure.HeldError{
		Record: l.Record, Why: tenure.WhyHeld, Until: l.Record.Deadline, Now: l.Record.Deadline.Add(-left),
	}
}

// lossOf returns the loss that the store's refusal means, or nil for other
// errors.
func lossOf(err error) *Lost {
	var refusal *tenure.NotOwnedError
	if !errors.As(err, &refusal) {
		return nil
	}
	return &Lost{Loss: renewal.LossOf(refusal), Err: err}
}

// leaseHeap orders leases by the time at which they must be looked at.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].renewer.Wake() < h[j].renewer.Wake() }
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
