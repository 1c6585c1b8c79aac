package keep

import (
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// doubtEvery is the shortest pause between two renewals out of turn. Each makes
// the next pause twice as long, up to the interval. A renewal in turn resets
// it.
const doubtEvery = time.Second

// Keeper keeps one lease: it says when to renew it and when it is over.
// NewKeeper makes one; the zero Keeper is not usable.
type Keeper struct {
	terms    Terms
	interval time.Duration
	deadline clock.Instant // local; only a confirmed grant or renewal moves it
	holdEnd  clock.Instant // MaxHold, or Never

	slot       clock.Instant // when the next renewal begins
	retry      clock.Instant // when to send the open renewal again, or Never
	pause      time.Duration // how long to wait after the next unknown answer
	doubt      clock.Instant // when to renew out of turn, or Never
	doubtedAt  clock.Instant // when the last renewal out of turn was
	doubtPause time.Duration // the pause between two renewals out of turn

	// The store's time of the newest record whose TTL is known here.
	heard time.Time
	// That TTL is too short for Notice: renewals ask for the own one.
	tooShort bool

	// The newest renewal is not confirmed yet.
	open     bool
	first    clock.Instant // when it was first sent
	sends    int           // how often it was sent
	failures int           // renewals in a row that were not confirmed

	// When the work last made progress, on the local clock.
	progress clock.Instant
	// The newest report seen in a record, on the store's clock.
	reported time.Time
	// The renewal that is due is not sent, because the work has stalled.
	withheld bool

	lost Loss
	err  error // the last answer that confirmed nothing
}

// Orders tell the user of a Keeper what to do, and report what the Keeper has
// noticed.
type Orders struct {
	// Renew asks to send a renewal now.
	Renew bool
	// Again says that this renewal was sent before, and may not have arrived.
	Again bool
	// Look asks to read the key's record: another process may have reported
	// progress.
	Look bool

	// Lost says that the lease is over, and why.
	Lost Loss
	// Err is the answer that led to the loss or failure, if there was one.
	Err error

	// Renewed says that a renewal was confirmed.
	Renewed bool
	// Margin is how much was left then until the local deadline.
	Margin time.Duration
	// Idle is how long ago the work last made progress.
	Idle time.Duration
	// Failures, if not 0, says that so many renewals in a row failed.
	Failures int
}

// NewKeeper begins to keep a lease. deadline is the local deadline that the
// store's answer gave (see Terms.Until). since is when the holder got the key:
// now, unless the lease was resumed. Jitter is as in Tick.
func NewKeeper(t Terms, deadline, since, now clock.Instant, rec tenure.Record, jitter float64) Keeper {
	t = t.with(rec.TTL)
	k := Keeper{
		terms: t, interval: t.Interval(), deadline: deadline, holdEnd: Never,
		retry: Never, doubt: Never, doubtedAt: now.Add(-doubtEvery), doubtPause: doubtEvery,
		progress: now, reported: rec.ProgressAt,
	}
	if t.MaxHold > 0 {
		k.holdEnd = After(since, t.MaxHold)
	}
	// Renew sooner if the grant was already old when it became known.
	k.slot = min(k.next(now, jitter), now.Add(k.cutoff().Sub(now)/2))
	k.follow(store.Answer{Record: rec}, now)
	return k
}

// Over returns the Keeper of a lease that is over. It gives no orders.
func Over(l Loss) Keeper { return Keeper{lost: l} }

// TTL returns the TTL with which the lease is kept: the newest that the store
// has confirmed, unless it is too short for Notice.
func (k *Keeper) TTL() time.Duration { return k.terms.TTL }

// Asks returns the TTL that a renewal asks for. 0 keeps that of the record.
func (k *Keeper) Asks() time.Duration {
	if k.tooShort {
		return k.terms.TTL
	}
	return 0
}

// Deadline returns the local deadline. The lease ends there at the latest.
func (k *Keeper) Deadline() clock.Instant { return k.deadline }

// Ends returns when the lease is over if nothing happens before.
func (k *Keeper) Ends() clock.Instant { return min(k.cutoff(), k.holdEnd) }

// Wake returns when Step must be called at the latest.
func (k *Keeper) Wake() clock.Instant {
	if k.lost != "" {
		return Never
	}
	return min(k.slot, k.retry, k.doubt, k.cutoff(), k.holdEnd)
}

// Early returns when a Tick may already do the work of Wake. A renewal may be
// sent a little early, together with others.
func (k *Keeper) Early() clock.Instant {
	if k.lost != "" {
		return Never
	}
	return min(k.early(), k.retry, k.doubt, k.cutoff(), k.holdEnd)
}

// Step takes an event, and returns the orders that follow from it.
func (k *Keeper) Step(e Event, now clock.Instant) Orders {
	if k.lost != "" {
		return Orders{}
	}
	if a, ok := e.(Answered); ok {
		if refusal := notOwned(a.Answer); refusal != nil {
			// The store's word is more exact than the clock's.
			return k.end(LossOf(refusal), a.Answer.Err)
		}
	}
	// Before anything else: an answer after the deadline cannot undo the loss.
	if loss := k.overdue(now); loss != "" {
		if loss == HeldTooLong || loss == Stalled {
			// The store's answers did not cause this loss.
			return k.end(loss, nil)
		}
		return k.end(loss, k.err)
	}
	switch e := e.(type) {
	case Tick:
		return k.tick(e.Jitter, now)
	case Answered:
		return k.answered(e, now)
	case Looked:
		k.sawReport(e.Record.ProgressAt, e.Now, now)
	case Progressed:
		k.progress = max(k.progress, now)
	case Doubted:
		if e.Once {
			at, pause := k.doubtedAt, k.doubtPause
			o := k.outOfTurn(now)
			k.doubtedAt, k.doubtPause = at, pause
			return o
		}
		k.doubt = max(now, k.doubtedAt.Add(k.doubtPause))
		if k.doubt == now {
			return k.outOfTurn(now)
		}
	case Ended:
		return k.end(e.Loss, nil)
	}
	if k.withheld && !k.stalled(now) {
		// This renewal gets a whole interval, like any other.
		k.slot = max(k.slot, k.next(now, 1))
		return k.begin(now)
	}
	return Orders{}
}

// overdue says why the lease is over by time alone, or returns "".
func (k *Keeper) overdue(now clock.Instant) Loss {
	switch {
	case now >= k.holdEnd && k.holdEnd <= k.cutoff():
		return HeldTooLong
	case now < k.cutoff():
		return ""
	case k.withheld:
		return Stalled
	case k.open || k.failures > 0:
		return Unreachable
	}
	return Expired
}

func (k *Keeper) tick(jitter float64, now clock.Instant) Orders {
	switch {
	case now >= k.doubt:
		return k.outOfTurn(now)
	case now >= k.early():
		failed := k.open
		if failed {
			k.failures++
			if k.failures >= k.terms.MaxFailures {
				o := k.end(Unreachable, k.err)
				o.Failures = k.failures
				return o
			}
		}
		k.slot, k.doubtPause = k.next(now, jitter), doubtEvery
		o := k.begin(now)
		if failed {
			o.Failures, o.Err = k.failures, k.err
		}
		return o
	case now >= k.retry:
		return k.send(now)
	}
	return Orders{}
}

// outOfTurn renews a lease whose key may have been given to another. A lease
// whose work has stalled is not renewed even then.
func (k *Keeper) outOfTurn(now clock.Instant) Orders {
	if k.doubt, k.doubtedAt = Never, now; k.doubtPause < k.interval {
		k.doubtPause = min(2*k.doubtPause, k.interval)
	}
	switch {
	case k.withheld:
		return Orders{}
	// Send it again: its answer may date from before the key was given away.
	case k.open:
		return k.send(now)
	}
	k.slot = k.next(now, 1)
	return k.begin(now)
}

// begin starts a renewal and sends it, unless the work has stalled.
func (k *Keeper) begin(now clock.Instant) Orders {
	if k.stalled(now) {
		k.withheld, k.open, k.retry = true, false, Never
		return Orders{Look: true}
	}
	k.withheld, k.open, k.first, k.sends, k.pause = false, true, now, 0, k.interval/16
	return k.send(now)
}

func (k *Keeper) send(now clock.Instant) Orders {
	k.sends++
	// A call that hangs for this long is taken for lost.
	k.retry = After(now, k.interval/2)
	return Orders{Renew: true, Again: k.sends > 1}
}

func (k *Keeper) answered(e Answered, now clock.Instant) Orders {
	present := k.open && e.Sent >= k.first
	if e.Answer.Err != nil {
		if k.open { // otherwise a later one was confirmed
			k.err = e.Answer.Err
		}
		if present {
			k.retry = After(now, k.pause)
			k.pause = min(2*k.pause, k.interval)
		}
		return Orders{}
	}
	first := e.Sent
	if present {
		if k.sends > 1 {
			first = k.first
		}
		k.open, k.retry = false, Never
	}
	o := Orders{Renewed: true, Margin: k.deadline.Sub(now)}
	// Use the later deadline: answers may overtake each other.
	k.deadline = max(k.deadline, k.terms.Until(first, e.Sent, e.Answer))
	k.failures, k.err = 0, nil
	k.follow(e.Answer, now)
	k.sawReport(e.Answer.Record.ProgressAt, e.Answer.Now, e.Sent)
	o.Idle = max(now.Sub(k.progress), 0)
	return o
}

// follow takes over the TTL of a record, which this or another process may have
// changed. Answers may overtake each other: the newest counts. If the TTL is
// too short for Notice, a renewal out of turn asks for the old one again.
func (k *Keeper) follow(a store.Answer, now clock.Instant) {
	ttl := a.Record.TTL
	if ttl <= 0 || a.Now.Before(k.heard) {
		return
	}
	k.heard, k.tooShort = a.Now, !k.terms.Fits(ttl)
	if k.tooShort {
		k.doubt = max(now, k.doubtedAt.Add(k.doubtPause))
	} else if ttl != k.terms.TTL {
		k.terms = k.terms.with(ttl)
		k.interval = k.terms.Interval()
		k.slot = min(k.slot, k.next(now, 1))
	}
}

// sawReport notes progress that another process has reported. The record shows
// it at reported, when the store's clock showed now and the local clock local.
func (k *Keeper) sawReport(reported, now time.Time, local clock.Instant) {
	if reported.After(k.reported) {
		k.reported = reported
		k.progress = max(k.progress, local.Add(-max(now.Sub(reported), 0)))
	}
}

func (k *Keeper) stalled(now clock.Instant) bool {
	return k.terms.StallAfter > 0 && now.Sub(k.progress) >= k.terms.StallAfter
}

func (k *Keeper) end(loss Loss, err error) Orders {
	k.lost = loss
	return Orders{Lost: loss, Err: err}
}

// cutoff returns when the context ends: Notice before the local deadline.
func (k *Keeper) cutoff() clock.Instant { return k.deadline.Add(-k.terms.Notice) }

// early returns when the next renewal may begin. An open renewal gets its whole
// interval first.
func (k *Keeper) early() clock.Instant {
	if k.open {
		return k.slot
	}
	return k.slot.Add(-k.interval / 8)
}

// next returns when the renewal after one at i begins.
func (k *Keeper) next(i clock.Instant, jitter float64) clock.Instant {
	return i.Add(Spread(k.interval, 0.9, 1, jitter))
}
