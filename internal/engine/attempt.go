package engine

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// attempt asks the store for one thing with one secret. The law grants a secret
// only once, so an attempt may send copies of its request until it knows the
// outcome.
type attempt struct {
	call    *Call           // nil after the caller of an acquire has left
	request *tenure.Request // with the secret; it does not change
	queued  *request        // the copy that waits in the pipeline
	newest  *request        // the newest copy in flight, unless it hangs
	copies  int             // copies ever sent
	doubt   int             // copies that were, or may still be, granted
	sends   int             // copies sent since the store last refused one
	first   clock.Instant   // when the first of those that may count was sent
	last    clock.Instant   // when the newest copy was sent
	memory  request         // for the first copy; later copies are allocated

	// After the caller has left:
	resolving  bool
	resolveEnd clock.Instant // any grant has lapsed by then
	next       clock.Instant // when to send a release
	poll       time.Duration
	alarm      alarm
}

// put puts a copy of the attempt's request into the pipeline.
func (e *Engine) put(a *attempt, at class) { e.putRequest(a, a.request, at) }

func (e *Engine) putRequest(a *attempt, req *tenure.Request, at class) {
	r := &a.memory
	if r.Request != nil {
		r = new(request)
	}
	*r = request{Request: req, attempt: a, class: at}
	a.queued = r
	e.pipeline.add(r)
}

// drop removes the copy that waits in the pipeline, if there is one.
func (e *Engine) drop(a *attempt) {
	if a.queued != nil {
		e.pipeline.remove(a.queued)
		a.queued = nil
	}
}

// sent notes that the copy in the pipeline is now in flight.
func (a *attempt) sent(r *request) {
	a.queued, a.newest = nil, r
	a.copies++
	if r.Verb != a.request.Verb {
		return // it releases what the acquire may have been granted
	}
	if a.sends == 0 || a.doubt == 0 { // no earlier copy can be the one that is granted
		a.first = r.sent
	}
	a.sends++
	a.doubt++
	a.last = r.sent
}

// answered takes the answer to one copy.
func (e *Engine) answered(a *attempt, r *request, answer *store.Answer) {
	if a.newest == r {
		a.newest = nil
	}
	if r.Verb == a.request.Verb && answer.Err != nil && (known(answer.Err) || store.IsFault(answer.Err)) {
		a.doubt--
	}
	c := a.call
	switch {
	case a.resolving:
		e.settle(a, r, answer)
	case c == nil || c.attempt != a || c.state != open: // nobody waits for the answer
		if c != nil && reports(c.Request.Verb) && c.Lease != nil && lossOf(answer.Err) != nil {
			e.stepLease(c.Lease, renewal.Answered{Answer: *answer}) // the store's refusal still ends the lease
		}
	case a.request.Verb == tenure.Acquire:
		e.acquireAnswered(c, r, answer)
	default:
		e.asked(c, r, answer)
	}
}

// leave lets an acquire's attempt go on without its caller, if a copy may have
// been granted. It reports whether the attempt goes on.
func (e *Engine) leave(a *attempt) bool {
	e.drop(a)
	c := a.call
	a.call = nil
	if a.doubt == 0 {
		return false
	}
	a.resolving, a.resolveEnd = true, renewal.After(max(e.now, e.arrived(a)), c.Policy.TTL+c.Policy.Margin())
	a.poll, a.next = PollFirst, e.now
	a.alarm.owner = a
	e.active++
	e.resolve(a)
	return true
}

// resolve sends a release for an attempt without a caller, if it is time to. It
// does not send the acquire again, because nobody wants the grant any more.
func (e *Engine) resolve(a *attempt) {
	switch {
	case !a.resolving:
		return
	case e.now >= a.resolveEnd:
		e.resolved(a, WasLeft)
		return
	case a.newest != nil && e.now < a.newest.hungAt():
		e.alarms.set(&a.alarm, min(a.newest.hungAt(), a.resolveEnd))
		return
	case a.queued == nil && (a.newest != nil || e.now >= a.next):
		e.putRequest(a, &tenure.Request{
			Verb: tenure.Release, Key: a.request.Key, Secret: a.request.Secret, Failed: true,
		}, again)
	}
	at := renewal.After(e.now, hungAfter)
	if a.queued == nil {
		at = a.next
	}
	e.alarms.set(&a.alarm, min(at, a.resolveEnd))
}

// arrived returns when no copy of an attempt's request can take effect any
// more. A copy may take effect until its call has ended, and a little later:
// two timeouts, and a second for clocks that run fast.
func (e *Engine) arrived(a *attempt) clock.Instant {
	return renewal.After(a.last, 2*e.o.CallTimeout+time.Second)
}

// settle takes an answer for an attempt without a caller.
func (e *Engine) settle(a *attempt, r *request, answer *store.Answer) {
	var refusal *tenure.NotOwnedError
	refused := errors.As(answer.Err, &refusal)
	if r.Verb == tenure.Acquire {
		switch {
		case refused, a.doubt == 0:
			e.resolved(a, WasNot)
			return
		case !errors.Is(answer.Err, tenure.ErrHeld) && !errors.Is(answer.Err, fence.ErrInvalid):
			a.next = e.now // granted or unknown: release it
		}
		e.resolve(a)
		return
	}
	switch {
	case answer.Err == nil:
		e.resolved(a, WasGranted)
		return
	case refused && refusal.Why != tenure.WhyUnknown,
		refused && r.sent >= e.arrived(a):
		e.resolved(a, WasNot)
		return
	}
	a.next = renewal.After(e.now, renewal.Spread(a.poll, 0.75, 1, e.o.Random()))
	a.poll = min(2*a.poll, PollMax)
	e.resolve(a)
}

// resolved ends an attempt without a caller.
func (e *Engine) resolved(a *attempt, how Outcome) {
	e.drop(a)
	a.resolving = false
	e.active--
	e.alarms.set(&a.alarm, renewal.Never)
	e.event(Event{
		Kind: Resolved, Key: a.request.Key, Verb: tenure.Acquire, Outcome: how, Grant: a.request.Secret.Grant(),
	})
}
