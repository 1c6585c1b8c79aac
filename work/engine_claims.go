package work

import (
	"errors"
	"math"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
)

// leastIdle is the wait after the first claim that found nothing; it doubles up to Poll.
const leastIdle = 20 * time.Millisecond

// nextClaim is the next claim, but for its secret and size.
func (en *engine) nextClaim() Claim {
	return Claim{Queues: en.queues, Limit: max(en.free(), 1), Secret: en.secret(), Owner: en.o.Owner, Instance: en.o.Instance, TTL: en.o.TTL}
}

// free is how many more items may be begun. What has been done and is not yet written counts when there is much of it: a ledger that does not answer is not given more to do.
func (en *engine) free() int {
	return min(en.o.Slots-en.running, 2*en.o.Slots-len(en.byKey))
}

// wantsClaim reports whether there is anything to claim for.
func (en *engine) wantsClaim() bool {
	return !en.claiming && (en.again || en.phase == open && en.free() > 0)
}

// claimIfDue claims, if it is time to.
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
	en.claiming = false
	if ev.err != nil {
		en.note(Event{Kind: EventClaimFailed, Err: ev.err})
		if errors.Is(ev.err, fence.ErrInvalid) {
			en.fatal = ev.err
			en.drain(now)
			return
		}
		en.again = true
		en.backOff(now)
		return
	}
	en.again = false
	for _, it := range ev.items {
		att := &attempt{
			item: it, secret: en.granted, running: true, began: now, moved: now, reported: progressOf(it), lookAt: now,
			deadline: en.asked.Add(en.o.TTL - en.margin()), beatAt: en.asked.Add(en.o.TTL / 3),
		}
		if en.byKey[att.key()] != nil { // a claim that was sent again
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
	case len(ev.items) < ev.asked && !en.woken: // that was all there is just now
		en.idle = 0
		en.backOff(now)
	default:
		en.idle, en.claimAt = 0, now
	}
	if len(ev.items) > 0 {
		en.note(Event{Kind: EventClaimed, Count: len(ev.items), Took: now.Sub(ev.sent)})
	}
}

// backOff lets a while pass before the next claim, longer each time, and not the same for all workers.
func (en *engine) backOff(now clock.Instant) {
	en.idle = min(max(2*en.idle, leastIdle), en.o.Poll)
	en.claimAt = now.Add(en.idle - time.Duration(float64(en.idle/4)*en.random()))
}

// never is a time that has not come yet.
const never clock.Instant = math.MinInt64

// linger is how long what could be done at once waits for more of the same, so that many short items do not become as many calls.
const linger = time.Millisecond

// claimsAt is when to claim for the slots that are free: at once if they are half of all.
func (en *engine) claimsAt() clock.Instant {
	if en.again || 2*en.free() >= en.o.Slots || en.freeAt == never {
		return en.claimAt
	}
	return max(en.claimAt, en.freeAt.Add(linger))
}

// forget takes an attempt off the engine.
func (en *engine) forget(att *attempt) {
	if en.byKey[att.key()] == att {
		delete(en.byKey, att.key())
	}
}
