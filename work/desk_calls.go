package work

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

const (
	// mostSent is how many requests go in one call, and mostBytes how much they weigh, if there is more than one.
	mostSent  = 1000
	mostBytes = 8 << 20
	// leastRetry and mostRetry bound the wait before what had no answer is sent again.
	leastRetry = 50 * time.Millisecond
	mostRetry  = time.Second
)

// beats reports whether the attempt is kept alive: its handler runs and gets somewhere, or its end is not yet written.
func (d *desk) beats(p *place, now clock.Instant) bool {
	if p.running {
		return p.lost == nil && !d.stalled(p, now)
	}
	return p.end != nil && (p.lost == nil || p.lost.Loss != Superseded)
}

// beat sends the heartbeats that are due, and those that soon will be, in one call.
func (d *desk) beat(now clock.Instant) {
	if d.beating {
		return
	}
	var batch []*errand
	due := false
	for _, p := range d.places {
		if d.beats(p, now) && p.beatAt <= now.Add(d.o.TTL/12) {
			due = due || p.beatAt <= now
			batch = append(batch, &errand{req: d.asks(p, Request{Verb: Heartbeat}), place: p})
		}
	}
	if due {
		d.beating = true
		d.do(sendAction{beats: true, batch: batch})
	}
}

// look asks the ledger about attempts that seem to have stalled: their progress may be reported by the deed, from another process. As long as there is none, it is asked for again when a heartbeat would be due.
func (d *desk) look(now clock.Instant) {
	if d.looking {
		return
	}
	var places []*place
	for _, p := range d.places {
		if p.running && p.lost == nil && d.stalled(p, now) && p.lookAt <= now {
			places = append(places, p)
		}
	}
	if len(places) > 0 {
		d.looking = true
		d.do(lookAction{places})
	}
}

func (d *desk) onLooked(ev lookedEvent, now clock.Instant) {
	d.looking, d.due = false, now
	for _, p := range ev.asked {
		p.lookAt = now.Add(d.o.TTL / 3)
		it, found := ev.found[p.key()]
		if at := progressOf(it); found && at.After(p.reported) {
			p.reported = at
			p.moved = max(p.moved, ev.sent.Add(-max(ev.now.Sub(at), 0)))
		}
	}
}

// progressOf is when an item's work last got somewhere, on the ledger's clock.
func progressOf(it Item) time.Time {
	if it.CheckpointAt.After(it.Record.ProgressAt) {
		return it.CheckpointAt
	}
	return it.Record.ProgressAt
}

// asks is a request of the attempt's owner.
func (d *desk) asks(p *place, req Request) Request {
	req.ID, req.Token, req.Secret = p.item.ID, p.item.Record.Token, p.secret
	return req
}

func (d *desk) onBeats(ev answeredEvent, now clock.Instant) {
	d.beating, d.due = false, now
	answered := Event{Kind: EventBeat}
	failed := Event{Kind: EventBeatFailed}
	for i, e := range ev.batch {
		p, err := e.place, ev.answers[i].Err
		switch {
		case d.by[p.key()] != p: // ended meanwhile
		case err == nil:
			answered.Count++
			p.deadline, p.beatAt = ev.sent.Add(d.o.TTL-d.margin()), ev.sent.Add(d.o.TTL/3)
		case errors.Is(err, ErrUnknown):
			failed.Count, failed.Err = failed.Count+1, err
			p.beatAt = now.Add(min(d.o.TTL/15, mostRetry))
		case p.end == nil:
			d.lose(p, Superseded, err)
		default: // what it ended with has just been written, or will be refused
			p.beatAt = now.Add(d.o.TTL / 3)
		}
	}
	if answered.Count > 0 {
		d.note(answered)
	}
	if failed.Count > 0 {
		d.note(failed)
	}
}

// onAsked passes on what a handler wants written while it works.
func (d *desk) onAsked(ev askedEvent, now clock.Instant) {
	p := d.by[ev.key]
	if p == nil || !p.running {
		d.do(replyAction{ev.ticket, Answer{Err: &StateError{What: string(ev.req.Verb), Of: "item " + string(ev.key.id), State: "over", Why: "its handler has returned"}}})
		return
	}
	if p.lost != nil {
		d.do(replyAction{ev.ticket, Answer{Err: p.lost}})
		return
	}
	p.moved, d.due = now, now // one that had stalled is kept alive again
	d.queue(&errand{req: d.asks(p, ev.req), place: p, ticket: ev.ticket}, now)
}

func (d *desk) onReturned(ev returnedEvent, now clock.Instant) {
	p := d.by[ev.key]
	if p == nil || !p.running { // abandoned before
		return
	}
	end := ev.end
	if end.Verb == Fail && p.lost != nil && (p.lost.Loss == Expired || p.lost.Loss == Drained) {
		end = Request{Verb: Release} // it was told to stop: that is no failure of the work
	}
	d.ends(p, end, now)
}

// ends puts what an attempt ended with on its way, unless it is known that it would not count.
func (d *desk) ends(p *place, end Request, now clock.Instant) {
	if p.running {
		p.running = false
		d.running--
	}
	if p.lost != nil && p.lost.Loss == Superseded {
		d.forget(p)
		return
	}
	end = d.asks(p, end)
	p.end = &end
	d.queue(&errand{req: end, place: p}, now)
}

// queue puts an errand behind the others.
func (d *desk) queue(e *errand, now clock.Instant) {
	if len(d.out) == 0 {
		d.outAt = now
	}
	d.out = append(d.out, e)
}

// sendsAt is when to send what waits: at once if it is half of what there can be.
func (d *desk) sendsAt() clock.Instant {
	if 2*len(d.out) >= d.running+len(d.out) {
		return d.sendAt
	}
	return max(d.sendAt, d.outAt.Add(linger))
}

// send puts what is waiting into one call.
func (d *desk) send(now clock.Instant) {
	if d.sending || len(d.out) == 0 || now < d.sendsAt() {
		return
	}
	n, weight := 0, 0
	for n < min(len(d.out), mostSent) {
		if weight += d.out[n].req.weight(); n > 0 && weight > mostBytes {
			break
		}
		n++
	}
	batch := d.out[:n:n]
	d.out = append([]*errand(nil), d.out[n:]...)
	d.outAt, d.sending = now, true
	d.do(sendAction{batch: batch})
}

func (d *desk) onAnswers(ev answeredEvent, now clock.Instant) {
	d.sending = false
	var unknown []*errand
	var why error
	for i, e := range ev.batch {
		a := ev.answers[i]
		switch {
		case e.ticket != 0:
			d.do(replyAction{e.ticket, a})
			if a.Err != nil && !errors.Is(a.Err, ErrUnknown) && !errors.Is(a.Err, ErrInvalid) && e.place.end == nil {
				d.lose(e.place, Superseded, a.Err)
			}
		case errors.Is(a.Err, ErrUnknown):
			unknown, why = append(unknown, e), a.Err
		default:
			d.onEnd(e, a, now)
		}
	}
	if unknown == nil {
		d.retry = 0
		return
	}
	d.note(Event{Kind: EventUnknown, Count: len(unknown), Err: why})
	d.out = append(unknown, d.out...)
	d.retry = min(max(2*d.retry, leastRetry), mostRetry)
	d.sendAt = now.Add(d.retry)
}

// onEnd hears what the ledger made of an attempt's end.
func (d *desk) onEnd(e *errand, a Answer, now clock.Instant) {
	p := e.place
	if e.req.Verb == Complete && errors.Is(a.Err, ErrInvalid) { // too large, say: the handler is to blame, and somebody must see it
		d.ends(p, Request{Verb: Fail, Error: Clip(a.Err.Error())}, now)
		return
	}
	d.forget(p)
	var event Event
	switch {
	case a.Err == nil:
		event = p.event(map[Verb]EventKind{Complete: EventCompleted, Fail: EventFailed, Release: EventReleased}[e.req.Verb])
		if e.req.Verb == Fail {
			event.Err = errors.New(e.req.Error)
		}
	case errors.Is(a.Err, ErrState) && a.Item.State == Done: // the handler completed it in a transaction of its own, and then failed
		event = p.event(EventCompleted)
	default:
		event = p.event(EventRefused)
		event.Err = a.Err
	}
	event.State, event.Repeated, event.Took = a.Item.State, a.Repeated, now.Sub(p.began)
	d.note(event)
}
