package work

import (
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/tenure"
)

// desk is the worker's mind: what is being worked on, what is on its way to the ledger, and what to do next. It is a state machine without goroutine, select or clock of its own: events and the time go in, actions come out. The runner drives it in production, tests drive
// the very same machine step by step.
type desk struct {
	o      Options
	queues []string
	secret func() tenure.Secret
	random func() float64 // from 0 up to 1

	places  []*place // in the order in which they were claimed; some may be gone until the step ends
	by      map[placeKey]*place
	running int           // whose handler runs
	due     clock.Instant // before which no place wants attention: with thousands of them most steps look at none

	claiming bool // a claim is on its way
	again    bool // the last claim has no answer: it is sent again
	granted  tenure.Secret
	asked    clock.Instant // when that claim was first sent: what it got is held from then on
	claimAt  clock.Instant
	freeAt   clock.Instant // since when slots are free
	idle     time.Duration
	woken    bool // while a claim was on its way

	out     []*errand // to be sent
	sending bool
	outAt   clock.Instant // since when something waits to be sent
	sendAt  clock.Instant
	retry   time.Duration
	beating bool
	looking bool // for progress that others have reported

	phase            phase
	drainBy, graceBy clock.Instant
	fatal            error

	actions []any
}

// phase is how far the end has come.
type phase int

const (
	open      phase = iota
	finishing       // nothing is claimed, handlers may finish
	stopping        // handlers have been told to stop
	leaving         // no handler is left, the ledger may still answer
)

// placeKey tells two attempts of one item apart.
type placeKey struct {
	id    ID
	token int64
}

// place is one attempt: its handler runs, or has returned and the ledger has not answered yet.
type place struct {
	item     Item
	secret   tenure.Secret
	running  bool
	lost     *LostError
	end      *Request      // what it ended with
	deadline clock.Instant // local: never later than the ledger's
	beatAt   clock.Instant
	moved    clock.Instant // when its work last got somewhere, as far as is known here
	reported time.Time     // the newest progress that the ledger has shown
	lookAt   clock.Instant // before which the ledger is not asked for newer
	began    clock.Instant
}

func (p *place) key() placeKey { return placeKey{p.item.ID, int64(p.item.Record.Token)} }

// errand is one request on its way to the ledger.
type errand struct {
	req    Request
	place  *place
	ticket int // of a handler that waits for the answer; 0: the end of an attempt, or a heartbeat
}

// The events that a desk is told of.
type (
	claimedEvent struct {
		items []Item
		asked int
		sent  clock.Instant
		err   error
	}
	returnedEvent struct {
		key placeKey
		end Request
	}
	askedEvent struct {
		key    placeKey
		req    Request
		ticket int
	}
	answeredEvent struct {
		beats   bool
		batch   []*errand
		answers []Answer
		sent    clock.Instant
	}
	lookedEvent struct {
		found map[placeKey]Item // as far as the ledger has answered
		asked []*place
		now   time.Time // the ledger's
		sent  clock.Instant
	}
	wokenEvent struct{}
	drainEvent struct{}
)

// The actions that a desk wants done.
type (
	claimAction struct{ claim Claim }
	sendAction  struct {
		beats bool
		batch []*errand
	}
	lookAction  struct{ places []*place }
	startAction struct{ place *place }
	loseAction  struct {
		place *place
		cause *LostError
	}
	replyAction struct {
		ticket int
		answer Answer
	}
)

func newDesk(queues []string, o Options) *desk {
	return &desk{freeAt: never, o: o, queues: queues, secret: tenure.NewSecret, random: func() float64 { return 0.5 }, by: map[placeKey]*place{}}
}

// margin is how long before the ledger's deadline the local one is.
func (d *desk) margin() time.Duration { return d.o.TTL / 10 }

// step takes in events and returns what to do.
func (d *desk) step(now clock.Instant, events ...any) []any {
	d.actions = nil
	for _, ev := range events {
		switch ev := ev.(type) {
		case claimedEvent:
			d.onClaimed(ev, now)
		case returnedEvent:
			d.onReturned(ev, now)
		case askedEvent:
			d.onAsked(ev, now)
		case answeredEvent:
			if ev.beats {
				d.onBeats(ev, now)
			} else {
				d.onAnswers(ev, now)
			}
		case lookedEvent:
			d.onLooked(ev, now)
		case wokenEvent:
			d.woken, d.idle, d.claimAt = true, 0, min(d.claimAt, now)
		case drainEvent:
			d.drain(now)
		}
	}
	d.close(now)
	if now >= d.due {
		d.watch(now)
		d.look(now)
		d.beat(now)
		d.due = d.nextDue(now)
	}
	d.send(now)
	d.take(now)
	if len(d.places) > len(d.by) {
		d.places = slices.DeleteFunc(d.places, func(p *place) bool { return d.by[p.key()] != p })
	}
	return d.actions
}

func (d *desk) do(action any)   { d.actions = append(d.actions, action) }
func (d *desk) note(e Event)    { d.do(e) }
func (d *desk) over() bool      { return d.phase == leaving && d.quiet() }
func (d *desk) unresolved() int { return len(d.by) }
func (d *desk) stalled(p *place, now clock.Instant) bool {
	return d.o.StallAfter > 0 && now.Sub(p.moved) >= d.o.StallAfter
}

// quiet reports whether nothing is open.
func (d *desk) quiet() bool {
	return len(d.by) == 0 && !d.claiming && !d.again && !d.sending && !d.beating && len(d.out) == 0
}

// drain begins the end.
func (d *desk) drain(now clock.Instant) {
	if d.phase == open {
		d.phase, d.drainBy = finishing, now.Add(d.o.Drain)
	}
}

// close goes on with the end when its time has come.
func (d *desk) close(now clock.Instant) {
	if d.phase == finishing && now >= d.drainBy {
		for _, p := range d.places {
			if p.running && p.lost == nil {
				d.lose(p, Drained, nil)
			}
		}
		d.phase, d.graceBy = stopping, now.Add(d.o.Grace)
	}
	if d.phase == stopping && now >= d.graceBy {
		for _, p := range d.places {
			if p.running { // its goroutine lives on, but whatever it returns is not heard
				d.note(p.event(EventAbandoned))
				d.ends(p, Request{Verb: Release}, now)
			}
		}
	}
	if (d.phase == finishing || d.phase == stopping) && d.running == 0 {
		d.phase, d.graceBy = leaving, now.Add(d.o.Grace)
	}
}

// expired reports whether the worker has to leave though something is still open.
func (d *desk) expired(now clock.Instant) bool { return d.phase == leaving && now >= d.graceBy }

// lose tells a handler to stop.
func (d *desk) lose(p *place, loss Loss, err error) {
	if p.lost != nil {
		if loss != Superseded || p.lost.Loss == Superseded {
			return
		}
	}
	p.lost = &LostError{Item: p.item.ID, Token: p.item.Record.Token, Loss: loss, Err: err}
	e := p.event(EventLost)
	e.Loss, e.Err = loss, err
	d.note(e)
	if p.running {
		d.do(loseAction{p, p.lost})
	}
}

// event is one about this attempt.
func (p *place) event(kind EventKind) Event {
	return Event{Kind: kind, Queue: p.item.Queue, Item: p.item.ID, Token: p.item.Record.Token, Attempt: p.item.Attempts}
}

// watch ends the contexts of handlers whose time is over.
func (d *desk) watch(now clock.Instant) {
	for _, p := range d.places {
		if p.running && p.lost == nil && now >= p.deadline {
			if d.stalled(p, now) {
				d.lose(p, Stalled, nil)
			} else {
				d.lose(p, Expired, nil)
			}
		}
	}
}

// nextDue is when a place next wants attention, if nothing happens to it before.
func (d *desk) nextDue(now clock.Instant) clock.Instant {
	at := now.Add(time.Hour)
	for _, p := range d.places {
		if p.running && p.lost == nil {
			at = min(at, p.deadline)
			if d.o.StallAfter > 0 && !d.looking {
				at = min(at, max(p.moved.Add(d.o.StallAfter), p.lookAt))
			}
		}
		if !d.beating && d.beats(p, now) {
			at = min(at, p.beatAt)
		}
	}
	return at
}

// longest is the longest time that a desk with anything on it is left alone: timers of the process may stand still while the machine sleeps.
const longest = time.Second

// next is when the desk wants to be asked again, if nothing happens before.
func (d *desk) next(now clock.Instant) clock.Instant {
	at := d.due
	sooner := func(t clock.Instant) { at = min(at, t) }
	if len(d.by) > 0 {
		sooner(now.Add(longest))
	}
	if len(d.out) > 0 && !d.sending {
		sooner(d.sendsAt())
	}
	if d.wants() {
		sooner(d.claimsAt())
	}
	switch d.phase {
	case finishing:
		sooner(d.drainBy)
	case stopping, leaving:
		sooner(d.graceBy)
	}
	return max(at, now)
}
