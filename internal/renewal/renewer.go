package renewal

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

// Renewer keeps one lease: it says when to renew it and when it is over.
// NewRenewer makes one; the zero Renewer is not usable.
type Renewer struct {
	policy   Policy
	interval time.Duration
	deadline clock.Instant // local; only a confirmed grant or renewal moves it
	holdEnd  clock.Instant // MaxHold, or Never

	due        clock.Instant // when the next renewal begins
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

// Orders tell the user of a Renewer what to do, and report what the Renewer has
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

// NewRenewer begins to keep a lease. deadline is the local deadline that the
// store's answer gave (see Policy.Until). since is when the holder got the key:
// now, unless the lease was resumed. Jitter is as in Tick.
func NewRenewer(p Policy, deadline, since, now clock.Instant, rec tenure.Record, jitter float64) Renewer {
	p = p.with(rec.TTL)
	r := Renewer{
		policy: p, interval: p.Interval(), deadline: deadline, holdEnd: Never,
		retry: Never, doubt: Never, doubtedAt: now.Add(-doubtEvery), doubtPause: doubtEvery,
		progress: now, reported: rec.ProgressAt,
	}
	if p.MaxHold > 0 {
		r.holdEnd = After(since, p.MaxHold)
	}
	// Renew sooner if the grant was already old when it became known.
	r.due = min(r.next(now, jitter), now.Add(r.cutoff().Sub(now)/2))
	r.follow(store.Answer{Record: rec}, now)
	return r
}

// Over returns the Renewer of a lease that is over. It gives no orders.
func Over(l Loss) Renewer { return Renewer{lost: l} }

// TTL returns the TTL with which the lease is kept: the newest that the store
// has confirmed, unless it is too short for Notice.
func (r *Renewer) TTL() time.Duration { return r.policy.TTL }

// Asks returns the TTL that a renewal asks for. 0 keeps that of the record.
func (r *Renewer) Asks() time.Duration {
	if r.tooShort {
		return r.policy.TTL
	}
	return 0
}

// Deadline returns the local deadline. The lease ends there at the latest.
func (r *Renewer) Deadline() clock.Instant { return r.deadline }

// Ends returns when the lease is over if nothing happens before.
func (r *Renewer) Ends() clock.Instant { return min(r.cutoff(), r.holdEnd) }

// Wake returns when Step must be called at the latest.
func (r *Renewer) Wake() clock.Instant {
	if r.lost != "" {
		return Never
	}
	return min(r.due, r.retry, r.doubt, r.cutoff(), r.holdEnd)
}

// Early returns when a Tick may already do the work of Wake. A renewal may be
// sent a little early, together with others.
func (r *Renewer) Early() clock.Instant {
	if r.lost != "" {
		return Never
	}
	return min(r.early(), r.retry, r.doubt, r.cutoff(), r.holdEnd)
}

// Step takes an event, and returns the orders that follow from it.
func (r *Renewer) Step(e Event, now clock.Instant) Orders {
	if r.lost != "" {
		return Orders{}
	}
	if a, ok := e.(Answered); ok {
		if refusal := notOwned(a.Answer); refusal != nil {
			// The store's word is more exact than the clock's.
			return r.end(LossOf(refusal), a.Answer.Err)
		}
	}
	// Before anything else: an answer after the deadline cannot undo the loss.
	if loss := r.overdue(now); loss != "" {
		if loss == HeldTooLong || loss == Stalled {
			// The store's answers did not cause this loss.
			return r.end(loss, nil)
		}
		return r.end(loss, r.err)
	}
	switch e := e.(type) {
	case Tick:
		return r.tick(e.Jitter, now)
	case Answered:
		return r.answered(e, now)
	case Looked:
		r.sawReport(e.Record.ProgressAt, e.Now, now)
	case Progressed:
		r.progress = max(r.progress, now)
	case Doubted:
		if e.Once {
			at, pause := r.doubtedAt, r.doubtPause
			o := r.outOfTurn(now)
			r.doubtedAt, r.doubtPause = at, pause
			return o
		}
		r.doubt = max(now, r.doubtedAt.Add(r.doubtPause))
		if r.doubt == now {
			return r.outOfTurn(now)
		}
	case Ended:
		return r.end(e.Loss, nil)
	}
	if r.withheld && !r.stalled(now) {
		// This renewal gets a whole interval, like any other.
		r.due = max(r.due, r.next(now, 1))
		return r.begin(now)
	}
	return Orders{}
}

// overdue says why the lease is over by time alone, or returns "".
func (r *Renewer) overdue(now clock.Instant) Loss {
	switch {
	case now >= r.holdEnd && r.holdEnd <= r.cutoff():
		return HeldTooLong
	case now < r.cutoff():
		return ""
	case r.withheld:
		return Stalled
	case r.open || r.failures > 0:
		return Unreachable
	}
	return Expired
}

func (r *Renewer) tick(jitter float64, now clock.Instant) Orders {
	switch {
	case now >= r.doubt:
		return r.outOfTurn(now)
	case now >= r.early():
		failed := r.open
		if failed {
			r.failures++
			if r.failures >= r.policy.MaxFailures {
				o := r.end(Unreachable, r.err)
				o.Failures = r.failures
				return o
			}
		}
		r.due, r.doubtPause = r.next(now, jitter), doubtEvery
		o := r.begin(now)
		if failed {
			o.Failures, o.Err = r.failures, r.err
		}
		return o
	case now >= r.retry:
		return r.send(now)
	}
	return Orders{}
}

// outOfTurn renews a lease whose key may have been given to another. A lease
// whose work has stalled is not renewed even then.
func (r *Renewer) outOfTurn(now clock.Instant) Orders {
	if r.doubt, r.doubtedAt = Never, now; r.doubtPause < r.interval {
		r.doubtPause = min(2*r.doubtPause, r.interval)
	}
	switch {
	case r.withheld:
		return Orders{}
	// Send it again: its answer may date from before the key was given away.
	case r.open:
		return r.send(now)
	}
	r.due = r.next(now, 1)
	return r.begin(now)
}

// begin starts a renewal and sends it, unless the work has stalled.
func (r *Renewer) begin(now clock.Instant) Orders {
	if r.stalled(now) {
		r.withheld, r.open, r.retry = true, false, Never
		return Orders{Look: true}
	}
	r.withheld, r.open, r.first, r.sends, r.pause = false, true, now, 0, r.interval/16
	return r.send(now)
}

func (r *Renewer) send(now clock.Instant) Orders {
	r.sends++
	// A call that hangs for this long is taken for lost.
	r.retry = After(now, r.interval/2)
	return Orders{Renew: true, Again: r.sends > 1}
}

func (r *Renewer) answered(e Answered, now clock.Instant) Orders {
	present := r.open && e.Sent >= r.first
	if e.Answer.Err != nil {
		if r.open { // otherwise a later one was confirmed
			r.err = e.Answer.Err
		}
		if present {
			r.retry = After(now, r.pause)
			r.pause = min(2*r.pause, r.interval)
		}
		return Orders{}
	}
	first := e.Sent
	if present {
		if r.sends > 1 {
			first = r.first
		}
		r.open, r.retry = false, Never
	}
	o := Orders{Renewed: true, Margin: r.deadline.Sub(now)}
	// Use the later deadline: answers may overtake each other.
	r.deadline = max(r.deadline, r.policy.Until(first, e.Sent, e.Answer))
	r.failures, r.err = 0, nil
	r.follow(e.Answer, now)
	r.sawReport(e.Answer.Record.ProgressAt, e.Answer.Now, e.Sent)
	o.Idle = max(now.Sub(r.progress), 0)
	return o
}

// follow takes over the TTL of a record, which this or another process may have
// changed. Answers may overtake each other: the newest counts. If the TTL is
// too short for Notice, a renewal out of turn asks for the old one again.
func (r *Renewer) follow(a store.Answer, now clock.Instant) {
	ttl := a.Record.TTL
	if ttl <= 0 || a.Now.Before(r.heard) {
		return
	}
	r.heard, r.tooShort = a.Now, !r.policy.Fits(ttl)
	if r.tooShort {
		r.doubt = max(now, r.doubtedAt.Add(r.doubtPause))
	} else if ttl != r.policy.TTL {
		r.policy = r.policy.with(ttl)
		r.interval = r.policy.Interval()
		r.due = min(r.due, r.next(now, 1))
	}
}

// sawReport notes progress that another process has reported. The record shows
// it at reported, when the store's clock showed now and the local clock local.
func (r *Renewer) sawReport(reported, now time.Time, local clock.Instant) {
	if reported.After(r.reported) {
		r.reported = reported
		r.progress = max(r.progress, local.Add(-max(now.Sub(reported), 0)))
	}
}

func (r *Renewer) stalled(now clock.Instant) bool {
	return r.policy.StallAfter > 0 && now.Sub(r.progress) >= r.policy.StallAfter
}

func (r *Renewer) end(loss Loss, err error) Orders {
	r.lost = loss
	return Orders{Lost: loss, Err: err}
}

// cutoff returns when the context ends: Notice before the local deadline.
func (r *Renewer) cutoff() clock.Instant { return r.deadline.Add(-r.policy.Notice) }

// early returns when the next renewal may begin. An open renewal gets its whole
// interval first.
func (r *Renewer) early() clock.Instant {
	if r.open {
		return r.due
	}
	return r.due.Add(-r.interval / 8)
}

// next returns when the renewal after one at i begins.
func (r *Renewer) next(i clock.Instant, jitter float64) clock.Instant {
	return i.Add(Spread(r.interval, 0.9, 1, jitter))
}
