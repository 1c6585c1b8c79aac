package work

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/excerpt"
)

const (
	// mostSent and mostBytes bound the requests of one call, by number and
	// size. A single request may be larger.
	mostSent  = 1000
	mostBytes = 8 << 20
	// leastRetry and mostRetry bound the wait before a request without an
	// answer is sent again.
	leastRetry = 50 * time.Millisecond
	mostRetry  = time.Second
)

// beats reports whether the engine keeps the attempt alive: its handler runs
// and makes progress, or its end is not yet written.
func (en *engine) beats(att *attempt, now clock.Instant) bool {
	if att.running {
		return att.lost == nil && !en.stalled(att, now)
	}
	return att.end != nil && (att.lost == nil || att.lost.Loss != Superseded)
}

// beat sends all heartbeats that are due, together with those that soon will
// be.
func (en *engine) beat(now clock.Instant) {
	if en.beating {
		return
	}
	var batch []*outgoing
	due := false
	for _, att := range en.attempts {
		if en.beats(att, now) && att.beatAt <= now.Add(en.o.TTL/12) {
			due = due || att.beatAt <= now
			batch = append(batch, &outgoing{req: en.asOwner(att, Request{Verb: Heartbeat}), attempt: att})
		}
	}
	if due {
		en.beating = true
		en.do(sendAction{beats: true, batch: batch})
	}
}

// look asks the ledger about attempts that seem to have stalled. Another
// process may have reported their progress by the deed. While there is none,
// look asks again as often as heartbeats would be due.
func (en *engine) look(now clock.Instant) {
	if en.looking {
		return
	}
	var attempts []*attempt
	for _, att := range en.attempts {
		if att.running && att.lost == nil && en.stalled(att, now) && att.lookAt <= now {
			attempts = append(attempts, att)
		}
	}
	if len(attempts) > 0 {
		en.looking = true
		en.do(lookAction{attempts})
	}
}

func (en *engine) onLooked(ev lookedEvent, now clock.Instant) {
	en.looking, en.due = false, now
	for _, att := range ev.asked {
		att.lookAt = now.Add(en.o.TTL / 3)
		it, found := ev.found[att.key()]
		if at := progressOf(it); found && at.After(att.reported) {
			att.reported = at
			att.moved = max(att.moved, ev.sent.Add(-max(ev.now.Sub(at), 0)))
		}
	}
}

// progressOf is when an item's work last made progress, on the ledger's clock.
// It is zero if it never did.
func progressOf(it Item) time.Time {
	if it.CheckpointAt.After(it.Record.ProgressAt) {
		return it.CheckpointAt
	}
	return it.Record.ProgressAt
}

// asOwner fills in the identity of the attempt's owner.
func (en *engine) asOwner(att *attempt, req Request) Request {
	req.ID, req.Token, req.Secret = att.item.ID, att.item.Record.Token, att.secret
	return req
}

func (en *engine) onBeats(ev answeredEvent, now clock.Instant) {
	en.beating, en.due = false, now
	answered := Event{Kind: EventBeat}
	failed := Event{Kind: EventBeatFailed}
	for i, e := range ev.batch {
		att, err := e.attempt, ev.answers[i].Err
		switch {
		case en.byKey[att.key()] != att: // ended meanwhile
		case err == nil:
			answered.Count++
			att.deadline, att.beatAt = ev.sent.Add(en.o.TTL-en.margin()), ev.sent.Add(en.o.TTL/3)
		case errors.Is(err, ErrUnknown):
			failed.Count, failed.Err = failed.Count+1, err
			att.beatAt = now.Add(min(en.o.TTL/15, mostRetry))
		case att.end == nil:
			en.lose(att, Superseded, err)
		default: // its end has just been written, or will be refused
			att.beatAt = now.Add(en.o.TTL / 3)
		}
	}
	if answered.Count > 0 {
		en.note(answered)
	}
	if failed.Count > 0 {
		en.note(failed)
	}
}

// onAsked queues a request that a handler makes while it works.
func (en *engine) onAsked(ev askedEvent, now clock.Instant) {
	att := en.byKey[ev.key]
	if att == nil || !att.running {
		en.do(replyAction{ev.ticket, Answer{Err: &StateError{
			What: string(ev.req.Verb), Of: "item " + string(ev.key.id), State: "over",
			Why: "its handler has returned",
		}}})
		return
	}
	if att.lost != nil {
		en.do(replyAction{ev.ticket, Answer{Err: att.lost}})
		return
	}
	att.moved, en.due = now, now // heartbeats resume if it had stalled
	en.queue(&outgoing{req: en.asOwner(att, ev.req), attempt: att, ticket: ev.ticket}, now)
}

func (en *engine) onReturned(ev returnedEvent, now clock.Instant) {
	att := en.byKey[ev.key]
	if att == nil || !att.running { // abandoned before
		return
	}
	end := ev.end
	if end.Verb == Fail && att.lost != nil && (att.lost.Loss == Expired || att.lost.Loss == Drained) {
		end = Request{Verb: Release} // it was told to stop: the work has not failed
	}
	en.endAttempt(att, end, now)
}

// endAttempt queues the request that ends an attempt. If the attempt is known
// to be superseded, the request would not count, and is not sent.
func (en *engine) endAttempt(att *attempt, end Request, now clock.Instant) {
	if att.running {
		att.running = false
		en.running--
	}
	if att.lost != nil && att.lost.Loss == Superseded {
		en.forget(att)
		return
	}
	end = en.asOwner(att, end)
	att.end = &end
	en.queue(&outgoing{req: end, attempt: att}, now)
}

// queue adds a request to those that wait to be sent.
func (en *engine) queue(e *outgoing, now clock.Instant) {
	if len(en.out) == 0 {
		en.outAt = now
	}
	en.out = append(en.out, e)
}

// sendsAt is when to send the waiting requests. It is at once if they are at
// least half of all attempts that could send one; otherwise they linger for
// more.
func (en *engine) sendsAt() clock.Instant {
	if 2*len(en.out) >= en.running+len(en.out) {
		return en.sendAt
	}
	return max(en.sendAt, en.outAt.Add(linger))
}

// send puts the waiting requests into one call.
func (en *engine) send(now clock.Instant) {
	if en.sending || len(en.out) == 0 || now < en.sendsAt() {
		return
	}
	n, weight := 0, 0
	for n < min(len(en.out), mostSent) {
		if weight += en.out[n].req.weight(); n > 0 && weight > mostBytes {
			break
		}
		n++
	}
	batch := en.out[:n:n]
	en.out = append([]*outgoing(nil), en.out[n:]...)
	en.outAt, en.sending = now, true
	en.do(sendAction{batch: batch})
}

func (en *engine) onAnswers(ev answeredEvent, now clock.Instant) {
	en.sending = false
	var unknown []*outgoing
	var why error
	for i, e := range ev.batch {
		a := ev.answers[i]
		switch {
		case e.ticket != 0:
			en.do(replyAction{e.ticket, a})
			if a.Err != nil && !errors.Is(a.Err, ErrUnknown) && !errors.Is(a.Err, ErrInvalid) && e.attempt.end == nil {
				en.lose(e.attempt, Superseded, a.Err)
			}
		case errors.Is(a.Err, ErrUnknown):
			unknown, why = append(unknown, e), a.Err
		default:
			en.onEnd(e, a, now)
		}
	}
	if unknown == nil {
		en.retry = 0
		return
	}
	en.note(Event{Kind: EventUnknown, Count: len(unknown), Err: why})
	en.out = append(unknown, en.out...)
	en.retry = min(max(2*en.retry, leastRetry), mostRetry)
	en.sendAt = now.Add(en.retry)
}

// onEnd handles the ledger's answer to the request that ended an attempt.
func (en *engine) onEnd(e *outgoing, a Answer, now clock.Instant) {
	att := e.attempt
	// The result is too large, for example. The handler is to blame, and
	// somebody must see it.
	if e.req.Verb == Complete && errors.Is(a.Err, ErrInvalid) {
		en.endAttempt(att, Request{Verb: Fail, Error: excerpt.Of(a.Err.Error(), MaxError)}, now)
		return
	}
	en.forget(att)
	var event Event
	switch {
	case a.Err == nil:
		event = att.event(map[Verb]EventKind{
			Complete: EventCompleted, Fail: EventFailed, Release: EventReleased,
		}[e.req.Verb])
		if e.req.Verb == Fail {
			event.Err = errors.New(e.req.Error)
		}
	case errors.Is(a.Err, ErrState) && a.Item.State == Done:
		// The handler completed it in its own transaction, and then failed.
		event = att.event(EventCompleted)
	default:
		event = att.event(EventRefused)
		event.Err = a.Err
	}
	event.State, event.Repeated, event.Took = a.Item.State, a.Repeated, now.Sub(att.began)
	en.note(event)
}
