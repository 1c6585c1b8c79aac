package work

import (
	"errors"
	"math"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
)

// leastIdle is the pause after the first claim that found nothing. It doubles
// up to Poll.
const leastIdle = 20 * time.Millisecond

// nextClaim returns a claim for the free slots, with a new secret.
func (en *engine) nextClaim() Claim {
	return Claim{
		Queues: en.queues, Limit: max(en.free(), 1), Secret: en.secret(),
		Owner: en.o.Owner, Instance: en.o.Instance, TTL: en.o.TTL,
	}
}

// free is how many more items may begin. At most twice Slots attempts exist at
// a time. So a ledger that does not answer is not asked for more work.
func (en *engine) free() int {
	return min(en.o.Slots-en.running, 2*en.o.Slots-len(en.byKey))
}

// wantsClaim reports whether there is something to claim for, and no claim is
// in flight.
func (en *engine) wantsClaim() bool {
	return !en.claiming && (en.again || en.phase == open && en.free() > 0)
}

// claimIfDue sends a claim if it is time to.
func (en *engine) claimIfDue(now clock.Instant) {
	switch {
	case !en.wantsClaim():
		en.freeAt = never
		return
	case en.freeAt == never:
		en.freeAt = now
	}
	if now < en.claimsAt() {
		return
	}
	c := en.nextClaim()
	if en.again {
		c.Secret, c.Again = en.granted, true
	} else {
		en.asked = now
	}
	en.granted, en.claiming, en.woken = c.Secret, true, false
	en.do(claimAction{c})
}

func (en *engine) onClaimed(ev claimedEvent, now clock.Instant) {
	again := en.again
	en.claiming, en.again = false, false
	if ev.err != nil {
		en.note(Event{Kind: EventClaimFailed, Err: ev.err})
		if errors.Is(ev.err, fence.ErrInvalid) { // the next try would be no better
			en.fatal = ev.err
			en.drain(now)
			return
		}
		en.again = again || !store.IsFault(ev.err) // a fault has taken nothing
		en.backOff(now)
		return
	}
	for _, it := range ev.items {
		att := &attempt{
			item: it, secret: en.granted, running: true, began: now, moved: now, reported: progressOf(it), lookAt: now,
			deadline: en.asked.Add(en.o.TTL - en.margin()), beatAt: en.asked.Add(en.o.TTL / 3),
		}
		if en.byKey[att.key()] != nil { // the claim was sent again, and this item is known
			continue
		}
		en.attempts, en.byKey[att.key()] = append(en.attempts, att), att
		en.running++
		en.due = min(en.due, att.beatAt)
		if en.phase != open { // too late to begin
			en.endAttempt(att, Request{Verb: Release}, now)
			continue
		}
		en.do(startAction{att})
	}
	switch {
	case len(ev.items) == 0 && !en.woken:
		en.backOff(now)
	case len(ev.items) < ev.asked && !en.woken: // nothing more is ready now
		en.idle = 0
		en.backOff(now)
	default:
		en.idle, en.claimAt = 0, now
	}
	if len(ev.items) > 0 {
		en.note(Event{Kind: EventClaimed, Count: len(ev.items), Took: now.Sub(ev.sent)})
	}
}

// backOff sets the pause before the next claim. It doubles each time, and is
// random, so that workers do not claim all at once.
func (en *engine) backOff(now clock.Instant) {
	en.idle = min(max(2*en.idle, leastIdle), en.o.Poll)
	en.claimAt = now.Add(en.idle - time.Duration(float64(en.idle/4)*en.random()))
}

// never is earlier than any time: the event has not happened.
const never clock.Instant = math.MinInt64

// linger is how long a claim or a batch waits for more to join it, so that many
// short items do not cost as many calls.
const linger = time.Millisecond

// claimsAt is when to claim for the free slots. It is at once if they are at
// least half of all.
func (en *engine) claimsAt() clock.Instant {
	if en.again || 2*en.free() >= en.o.Slots || en.freeAt == never {
		return en.claimAt
	}
	return max(en.claimAt, en.freeAt.Add(linger))
}

// forget ends an attempt. The rest of the engine no longer knows it.
func (en *engine) forget(att *attempt) {
	if en.byKey[att.key()] == att {
		delete(en.byKey, att.key())
	}
}
