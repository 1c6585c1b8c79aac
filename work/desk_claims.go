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

// claim is the next claim, but for its secret and size.
func (d *desk) claim() Claim {
	return Claim{Queues: d.queues, Limit: max(d.free(), 1), Secret: d.secret(), Owner: d.o.Owner, Instance: d.o.Instance, TTL: d.o.TTL}
}

// free is how many more items may be begun. What has been done and is not yet written counts when there is much of it: a ledger that does not answer is not given more to do.
func (d *desk) free() int {
	return min(d.o.Slots-d.running, 2*d.o.Slots-len(d.by))
}

// wants reports whether there is anything to claim for.
func (d *desk) wants() bool {
	return !d.claiming && (d.again || d.phase == open && d.free() > 0)
}

// take claims, if it is time to.
func (d *desk) take(now clock.Instant) {
	switch {
	case !d.wants():
		d.freeAt = never
		return
	case d.freeAt == never:
		d.freeAt = now
	}
	if now < d.claimsAt() {
		return
	}
	c := d.claim()
	if d.again {
		c.Secret, c.Again = d.granted, true
	} else {
		d.asked = now
	}
	d.granted, d.claiming, d.woken = c.Secret, true, false
	d.do(claimAction{c})
}

func (d *desk) onClaimed(ev claimedEvent, now clock.Instant) {
	d.claiming = false
	if ev.err != nil {
		d.note(Event{Kind: EventClaimFailed, Err: ev.err})
		if errors.Is(ev.err, fence.ErrInvalid) {
			d.fatal = ev.err
			d.drain(now)
			return
		}
		d.again = true
		d.wait(now)
		return
	}
	d.again = false
	for _, it := range ev.items {
		p := &place{
			item: it, secret: d.granted, running: true, began: now, moved: now, reported: progressOf(it), lookAt: now,
			deadline: d.asked.Add(d.o.TTL - d.margin()), beatAt: d.asked.Add(d.o.TTL / 3),
		}
		if d.by[p.key()] != nil { // a claim that was sent again
			continue
		}
		d.places, d.by[p.key()] = append(d.places, p), p
		d.running++
		d.due = min(d.due, p.beatAt)
		if d.phase != open { // too late to begin
			d.ends(p, Request{Verb: Release}, now)
			continue
		}
		d.do(startAction{p})
	}
	switch {
	case len(ev.items) == 0 && !d.woken:
		d.wait(now)
	case len(ev.items) < ev.asked && !d.woken: // that was all there is just now
		d.idle = 0
		d.wait(now)
	default:
		d.idle, d.claimAt = 0, now
	}
	if len(ev.items) > 0 {
		d.note(Event{Kind: EventClaimed, Count: len(ev.items), Took: now.Sub(ev.sent)})
	}
}

// wait lets a while pass before the next claim, longer each time, and not the same for all workers.
func (d *desk) wait(now clock.Instant) {
	d.idle = min(max(2*d.idle, leastIdle), d.o.Poll)
	d.claimAt = now.Add(d.idle - time.Duration(float64(d.idle/4)*d.random()))
}

// never is a time that has not come yet.
const never clock.Instant = math.MinInt64

// linger is how long what could be done at once waits for more of the same, so that many short items do not become as many calls.
const linger = time.Millisecond

// claimsAt is when to claim for the slots that are free: at once if they are half of all.
func (d *desk) claimsAt() clock.Instant {
	if d.again || 2*d.free() >= d.o.Slots || d.freeAt == never {
		return d.claimAt
	}
	return max(d.claimAt, d.freeAt.Add(linger))
}

// forget takes an attempt off the desk.
func (d *desk) forget(p *place) {
	if d.by[p.key()] == p {
		delete(d.by, p.key())
	}
}
