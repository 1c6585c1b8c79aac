package engine

import (
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// closeBound is how long a closing engine pursues unknown outcomes, or twice
// CallTimeout if that is less. An unknown acquire needs two calls: the one in
// flight, and the release of its grant.
const closeBound = 2 * time.Second

// Options configure an engine. All fields but the first four are required.
type Options struct {
	// Observed says that somebody wants the events.
	Observed bool
	// Watches says that the store gives hints.
	Watches bool
	// Acts says that the store announces operators' acts.
	Acts bool
	// CallTimeout bounds one call of the store.
	CallTimeout time.Duration
	// Random gives numbers from 0 up to 1.
	Random func() float64
	// NewSecret makes the secret of an acquire.
	NewSecret func() tenure.Secret
}

// Engine decides for one client. It is not safe for concurrent use. Every
// method takes the present time; it must not go backwards.
type Engine struct {
	o        Options
	now      clock.Instant
	queues   map[string]*queue
	pipeline pipeline
	leases   leaseHeap // ordered by the next renewal or end
	alarms   alarmHeap // everything else that waits for a time
	acts     acts      // the watch for operators' acts
	active   int       // calls without a reply, and attempts without a caller

	closed  error // why calls are refused; nil before Close
	closeBy clock.Instant
	left    bool // an outcome was still unknown when the engine closed

	ready Ready
}

// Ready holds the work that the engine wants done. Its fields may be carried
// out in any order. Within a field the order matters.
type Ready struct {
	// Call the store with each of these, then call Answered.
	Send []*Batch
	// These calls have their Reply.
	Replies []*Call
	// Raise the fence for Reply.Lease, then call Raised.
	Raise []*Call
	// Read the key's record and the store's time, then call Looked.
	Look []*Lease
	// Begin to pass on hints about these keys, or Acts, by calling Hint.
	Watch []string
	// Stop passing on hints about these keys.
	Unwatch []string
	// These leases have ended: see Lease.Lost.
	Over   []*Lease
	Events []Event // for observers
	// Call Tick then, at the latest.
	Wake clock.Instant
	// Every call has its reply, and no attempt is left.
	Idle bool
}

// New makes an engine.
func New(o Options) *Engine {
	e := &Engine{o: o, queues: map[string]*queue{}, closeBy: renewal.Never}
	e.acts.alarm.owner = &e.acts
	return e
}

// Ready returns the work that came up since the last Ready. The user calls Tick
// at Wake, at the latest.
func (e *Engine) Ready() Ready {
	e.send()
	r := e.ready
	e.ready = Ready{}
	r.Wake = e.pipeline.wake(e.now)
	if e.active > 0 {
		r.Wake = min(r.Wake, e.closeBy)
	}
	if len(e.leases) > 0 {
		r.Wake = min(r.Wake, e.leases[0].renewer.Wake())
	}
	if len(e.alarms) > 0 {
		r.Wake = min(r.Wake, e.alarms[0].at)
	}
	r.Idle = e.active == 0
	return r
}

// Begin takes a call. Its reply may come at once.
func (e *Engine) Begin(now clock.Instant, c *Call) {
	e.advance(now)
	e.active++
	c.began, c.state, c.alarm.owner = e.now, open, c
	switch {
	case e.closed != nil && !(c.Request.Verb == tenure.Release && c.Lease.settled()):
		e.reply(c, fmt.Errorf("%w; make a new one", e.closed))
	case c.Request.Verb == tenure.Acquire:
		e.join(c)
	case c.Lease != nil:
		e.beginOfLease(c)
	default:
		e.ask(c)
	}
}

// Abandon ends a call whose caller no longer waits. Afterwards the call has a
// reply, unless its fence is being raised. Then the reply comes after Raised.
func (e *Engine) Abandon(now clock.Instant, c *Call, why error) {
	e.advance(now)
	e.abandon(c, why)
}

func (e *Engine) abandon(c *Call, why error) {
	switch {
	case c.state == done:
	case c.state == raising:
		c.acquire.abandoned = true
	case c.Request.Verb == tenure.Acquire:
		e.abandonAcquire(c, why)
	default:
		e.giveUp(c, why)
	}
}

// Forget ends a call whose store has panicked. The engine does not ask again in
// the background: a second panic there would end the process. If the request
// was granted, the grant lapses.
func (e *Engine) Forget(now clock.Instant, c *Call, why error) {
	e.advance(now)
	if c.state != open || c.attempt == nil {
		return
	}
	e.drop(c.attempt)
	err := store.Unknown(fmt.Errorf("%s of %q: %w", c.Request.Verb, c.Request.Key, why))
	switch {
	case c.Request.Verb == tenure.Acquire:
		e.leaveQueue(c, err)
	case c.Request.Verb == tenure.Release && c.Lease != nil:
		e.releaseLeft(c, err)
	default:
		e.reply(c, err)
	}
}

// Answered brings the store's answers to a batch, one for each request.
func (e *Engine) Answered(now clock.Instant, b *Batch, answers []store.Answer) {
	e.advance(now)
	if len(answers) != len(b.Requests) {
		answers = store.Failed(len(b.Requests),
			fmt.Errorf("the store gave %d answers to %d requests", len(answers), len(b.Requests)))
	}
	e.pipeline.landed(b)
	e.renewed(b, answers)
	for i, r := range b.requests {
		if r.attempt != nil {
			e.answered(r.attempt, r, &answers[i])
		}
	}
}

// Tick says that time has passed.
func (e *Engine) Tick(now clock.Instant) {
	e.advance(now)
	e.renewDue()
	for len(e.alarms) > 0 && e.alarms[0].at <= e.now {
		a := e.alarms[0]
		e.alarms.set(a, renewal.Never)
		a.ring(e)
	}
	if e.now >= e.closeBy {
		e.closeNow()
	}
}

// Close ends every lease and refuses every call from now on. It answers all
// acquires. Other calls, and attempts without a caller, have two seconds, or
// two call timeouts if those are shorter. After that, Ready is Idle.
func (e *Engine) Close(now clock.Instant, why error) {
	e.advance(now)
	if e.closed != nil {
		return
	}
	e.closed, e.closeBy = why, e.now.Add(min(closeBound, 2*e.o.CallTimeout))
	for len(e.leases) > 0 {
		e.stepLease(e.leases[0], renewal.Ended{Loss: renewal.Closed})
	}
	for _, key := range slices.Sorted(maps.Keys(e.queues)) { // sorted, so that a seed gives one order
		q := e.queues[key]
		for c := q.last; c != nil; c = q.last { // from the end, so that no call becomes the head and asks
			e.abandon(c, why)
		}
	}
}

// Left reports whether an outcome was still unknown when the engine closed.
func (e *Engine) Left() bool { return e.left }

// Pursues reports whether an attempt with this secret is under way: a call asks
// with it, or the engine resolves it without a caller. It looks at every call,
// and is for tests.
func (e *Engine) Pursues(s tenure.Secret) bool {
	for _, q := range e.queues {
		for c := q.first; c != nil; c = c.acquire.after {
			if c.attempt != nil && c.attempt.request.Secret == s {
				return true
			}
		}
	}
	return slices.ContainsFunc(e.alarms, func(a *alarm) bool {
		left, is := a.owner.(*attempt)
		return is && left.resolving && left.request.Secret == s
	})
}

// Load says how much work an engine has.
type Load struct {
	Active   int // calls without a reply, and attempts without a caller
	Queues   int // keys that this client holds or waits for
	Leases   int
	Waiting  int // requests in the pipeline
	InFlight int // batches
}

// Load returns the present load.
func (e *Engine) Load() Load {
	p := &e.pipeline
	return Load{
		Active: e.active, Queues: len(e.queues), Leases: len(e.leases), InFlight: len(p.flying),
		Waiting: p.size(fresh) + p.size(again) + p.size(alone),
	}
}

// closeNow gives up everything that is left, two seconds after Close.
func (e *Engine) closeNow() {
	e.closeBy = renewal.Never
	for _, a := range append(alarmHeap(nil), e.alarms...) {
		switch owner := a.owner.(type) {
		case *Call:
			e.left = true
			e.abandon(owner, e.closed)
		case *attempt:
			e.left = true
			e.resolved(owner, WasLeft)
		}
	}
	e.pipeline.clear()
}

func (e *Engine) advance(now clock.Instant) { e.now = max(e.now, now) }

// event records an event, if somebody wants events.
func (e *Engine) event(ev Event) {
	if e.o.Observed {
		e.ready.Events = append(e.ready.Events, ev)
	}
}

// alarm is a time at which its owner must be looked at.
type alarm struct {
	at    clock.Instant
	owner any // a *Call, *attempt, *queue or *acts
	index int // in the heap, plus one; 0 when it is not set
}

func (a *alarm) ring(e *Engine) {
	switch owner := a.owner.(type) {
	case *Call:
		e.callDue(owner)
	case *attempt:
		e.resolve(owner)
	case *queue:
		owner.contended = owner.contended && owner.yield
		owner.yield = false
		e.tidy(owner)
	case *acts:
		e.watchActs()
	}
}

// alarmHeap orders alarms by their time.
type alarmHeap []*alarm

// set moves an alarm to another time. renewal.Never removes it.
func (h *alarmHeap) set(a *alarm, at clock.Instant) {
	a.at = at
	switch {
	case a.index == 0 && at != renewal.Never:
		heap.Push(h, a)
	case a.index == 0:
	case at == renewal.Never:
		heap.Remove(h, a.index-1)
	default:
		heap.Fix(h, a.index-1)
	}
}

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push is for package heap.
func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	a.index = len(*h) + 1
	*h = append(*h, a)
}

// Pop is for package heap.
func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	return a
}
