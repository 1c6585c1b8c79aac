package engine

import (
	"slices"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/tenure"
)

const (
	// maxInFlight limits the batches in flight, hanging ones included.
	maxInFlight = 4
	// maxBatch limits the requests in one batch, so that a slow store answers
	// in time. Renewals fill at most maxRenewals of it, so that many leases do
	// not keep other requests out.
	maxBatch    = 1000
	maxRenewals = 800
)

// request is one copy of an attempt's request, or of a lease's renewal.
type request struct {
	*tenure.Request
	attempt *attempt
	lease   *Lease
	class   class
	number  int // the order in which requests came
	sent    clock.Instant

	list       *list // in the pipeline; nil when it is not there
	prev, next *request
}

// hungAt is when a request in flight is taken for lost.
func (r *request) hungAt() clock.Instant { return renewal.After(r.sent, hungAfter) }

// class groups requests: only requests of one class share a batch.
type class int

const (
	fresh class = iota // sent for the first time
	again              // sent before, without an answer
	alone              // in a batch of its own
	classes
)

// Batch is several requests in one call of the store.
type Batch struct {
	// Requests are for store.Apply, in this order.
	Requests []tenure.Request
	// Caller is set if the batch was sent for one call alone and no other batch
	// is in flight. Then the caller can call the store itself. The next acquire
	// may go along with a release.
	Caller *Call

	requests []*request
	class    class
	sent     clock.Instant
	memory   struct {
		requests [1]tenure.Request
		pointers [1]*request
	}
}

// hangs reports whether others may overtake the batch.
func (b *Batch) hangs(now clock.Instant) bool { return now >= renewal.After(b.sent, hungAfter) }

// pipeline holds the requests that wait, and the batches in flight.
type pipeline struct {
	renewals [classes]list
	others   [classes]list
	favoured bool // the last batch was chosen for a renewal
	number   int  // of the newest request
	flying   []*Batch
}

// add puts a request into the pipeline.
func (p *pipeline) add(r *request) {
	p.number++
	r.number = p.number
	if r.lease != nil {
		p.renewals[r.class].push(r)
		return
	}
	p.others[r.class].push(r)
}

// remove takes back a request that still waits.
func (p *pipeline) remove(r *request) {
	if r.list != nil {
		r.list.remove(r)
	}
}

// clear takes back all requests.
func (p *pipeline) clear() {
	for l := range classes {
		for _, waiting := range []*list{&p.renewals[l], &p.others[l]} {
			for waiting.first != nil {
				waiting.remove(waiting.first)
			}
		}
	}
}

// landed notes that a batch is no longer in flight.
func (p *pipeline) landed(b *Batch) {
	if i := slices.Index(p.flying, b); i >= 0 {
		p.flying = slices.Delete(p.flying, i, i+1)
	}
}

// empty reports whether no request waits.
func (p *pipeline) empty() bool {
	return p.size(fresh)+p.size(again)+p.size(alone) == 0
}

// wake returns when a batch in flight begins to hang, if requests wait for
// that.
func (p *pipeline) wake(now clock.Instant) clock.Instant {
	at := renewal.Never
	if p.empty() {
		return at
	}
	for _, b := range p.flying {
		if !b.hangs(now) {
			at = min(at, renewal.After(b.sent, hungAfter))
		}
	}
	return at
}

// send turns the waiting requests into batches, as far as they may be sent now.
func (e *Engine) send() {
	p := &e.pipeline
	for !p.empty() && p.canSend(e.now) {
		b := p.take()
		b.sent = e.now
		if a := b.requests[0].attempt; a != nil && len(p.flying) == 0 && len(b.requests) <= 2 && p.empty() {
			b.Caller = a.call
		}
		p.flying = append(p.flying, b)
		for _, r := range b.requests {
			r.sent = e.now
			if r.attempt != nil {
				r.attempt.sent(r)
			} else {
				r.lease.queued = nil
			}
		}
		e.ready.Send = append(e.ready.Send, b)
	}
}

// canSend reports whether another batch may be sent now: all in flight hang.
func (p *pipeline) canSend(now clock.Instant) bool {
	for _, b := range p.flying {
		if !b.hangs(now) {
			return false
		}
	}
	return len(p.flying) < maxInFlight
}

// take makes the next batch. At least one request waits.
func (p *pipeline) take() *Batch {
	b := &Batch{class: p.lead()}
	most := min(maxBatch, p.size(b.class))
	if b.class == alone {
		most = 1
	}
	if b.Requests, b.requests = b.memory.requests[:0], b.memory.pointers[:0]; most > 1 {
		b.Requests, b.requests = make([]tenure.Request, 0, most), make([]*request, 0, most)
	}
	renewals, others := &p.renewals[b.class], &p.others[b.class]
	for len(b.requests) < min(most, maxRenewals) && renewals.first != nil {
		b.add(renewals.remove(renewals.first))
	}
	for len(b.requests) < most && others.first != nil {
		b.add(others.remove(others.first))
	}
	return b
}

// lead returns the class of the next batch. Every other time that is the class
// of the oldest renewal: a caller can wait, a lease cannot. Otherwise it is the
// class of the request that has waited longest.
func (p *pipeline) lead() class {
	var renewal, oldest *request
	for l := range classes {
		renewal = older(renewal, p.renewals[l].first)
		oldest = older(oldest, p.others[l].first)
	}
	oldest = older(oldest, renewal)
	if renewal != nil && !p.favoured {
		oldest = renewal
	}
	p.favoured = oldest.lease != nil
	return oldest.class
}

// older returns the request that has waited longer. Either may be nil.
func older(a, b *request) *request {
	if a == nil || b != nil && b.number < a.number {
		return b
	}
	return a
}

// size returns how many requests of a class wait.
func (p *pipeline) size(l class) int { return p.renewals[l].size + p.others[l].size }

func (b *Batch) add(r *request) {
	b.requests = append(b.requests, r)
	b.Requests = append(b.Requests, *r.Request)
}

// list is a queue of requests.
type list struct {
	first, last *request
	size        int
}

func (l *list) push(r *request) {
	r.list, r.prev = l, l.last
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
	l.size++
}

func (l *list) remove(r *request) *request {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.list, r.prev, r.next = nil, nil, nil
	l.size--
	return r
}
