package keep

import (
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/tenure"
)

// doubtEvery is the shortest pause between two renewals out of turn, whoever
// says that the lease is another's by now. Each makes the next pause twice as
// long, up to the interval, until a renewal in turn.
const doubtEvery = time.Second

// Keeper keeps one lease: it says when to renew it and when it is over. The zero Keeper is not usable.
type Keeper struct {
	terms    Terms
	interval time.Duration
	deadline clock.Instant // local: only a confirmed grant or renewal moves it
	holdEnd  clock.Instant // MaxHold, or Never

	slot  clock.Instant // when the next renewal begins
	retry clock.Instant // when to send the present one again, or Never
	pause time.Duration // before the retry after the next unknown answer
	doubt clock.Instant // when to renew out of turn, or Never
	asked clock.Instant // when that was last done
	calm  time.Duration // how long it is not done again after that

	open     bool          // the present renewal is not confirmed
	first    clock.Instant // when it was first sent
	sends    int           // how often
	failures int           // renewals in a row that ended unconfirmed

	progress clock.Instant
	reported time.Time // on the store's clock: the newest report seen in a record
	withheld bool      // the present renewal is not sent because the work has stalled

	lost Loss
	err  error // the last answer that was no confirmation
}

// Orders are what a Keeper wants done, and what it has noticed.
type Orders struct {
	Renew bool // send a renewal now,
	Again bool // which has been sent before and is not known to have arrived
	Look  bool // read the key's record now: perhaps another process has reported progress

	Lost Loss  // the lease is over
	Err  error // the answer that led to it, if there was one

	Renewed  bool          // a renewal was confirmed,
	Margin   time.Duration // this long before the lease would have ended
	Idle     time.Duration // and this long after the work was last known to have got somewhere
	Failures int           // a renewal ended unconfirmed: so many in a row
}

// NewKeeper begins to keep a lease whose local deadline is as a store's answer gave it (see Terms.Until). since is when the holder got it: now,
// unless the lease has been resumed. Jitter is as in Tick.
func NewKeeper(t Terms, deadline, since, now clock.Instant, rec tenure.Record, jitter float64) Keeper {
	k := Keeper{
		terms: t, interval: t.Interval(), deadline: deadline, holdEnd: Never,
		retry: Never, doubt: Never, asked: now.Add(-doubtEvery), calm: doubtEvery, progress: now, reported: rec.ProgressAt,
	}
	if t.MaxHold > 0 {
		k.holdEnd = After(since, t.MaxHold)
	}
	k.slot = min(k.next(now, jitter), now.Add(k.cutoff().Sub(now)/2)) // sooner, if the grant was already old when it became known
	return k
}

// Deadline is the local deadline: authority ends there at the latest.
func (k *Keeper) Deadline() clock.Instant { return k.deadline }

// Ends is when the lease is over if nothing happens before.
func (k *Keeper) Ends() clock.Instant { return min(k.cutoff(), k.holdEnd) }

// Wake is when Step has something to do at the latest.
func (k *Keeper) Wake() clock.Instant {
	if k.lost != "" {
		return Never
	}
	return min(k.slot, k.retry, k.doubt, k.cutoff(), k.holdEnd)
}

// Early is from when on a Tick does what would be due at Wake: a renewal may be sent a little before its time, in the company of others.
func (k *Keeper) Early() clock.Instant {
	if k.lost != "" {
		return Never
	}
	return min(k.early(), k.retry, k.doubt, k.cutoff(), k.holdEnd)
}

// Step takes what has happened by now.
func (k *Keeper) Step(e Event, now clock.Instant) Orders {
	if k.lost != "" {
		return Orders{}
	}
	if a, ok := e.(Answered); ok {
		if refusal := notOwned(a.Answer); refusal != nil {
			return k.end(LossOf(refusal), a.Answer.Err) // the store's word says more than the clock's
		}
	}
	if loss := k.overdue(now); loss != "" { // first: what arrives after the deadline cannot undo it
		if loss == HeldTooLong || loss == Stalled {
			return k.end(loss, nil) // whatever the store has answered, it would have ended
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
		k.doubt = max(now, k.asked.Add(k.calm))
		if k.doubt == now {
			return k.outOfTurn(now)
		}
	case Ended:
		return k.end(e.Loss, nil)
	}
	if k.withheld && !k.stalled(now) {
		k.slot = max(k.slot, k.next(now, 1)) // it gets its whole interval, like any other
		return k.begin(now)
	}
	return Orders{}
}

// overdue says why the lease is over by time alone, or "".
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
		k.slot, k.calm = k.next(now, jitter), doubtEvery
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

// outOfTurn renews a lease that may be another's by now. A lease whose work has
// stalled is not renewed, not even for that.
func (k *Keeper) outOfTurn(now clock.Instant) Orders {
	if k.doubt, k.asked = Never, now; k.calm < k.interval {
		k.calm = min(2*k.calm, k.interval)
	}
	switch {
	case k.withheld:
		return Orders{}
	case k.open: // it may have been confirmed before the key became another's
		return k.send(now)
	}
	k.slot = k.next(now, 1)
	return k.begin(now)
}

// begin is the start of a renewal: its first sending, unless the work has stalled.
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
	k.retry = After(now, k.interval/2) // a call that hangs for so long is taken for lost
	return Orders{Renew: true, Again: k.sends > 1}
}

func (k *Keeper) answered(e Answered, now clock.Instant) Orders {
	present := k.open && e.Sent >= k.first
	if e.Answer.Err != nil {
		if k.open { // else a later one has been confirmed
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
	k.deadline = max(k.deadline, k.terms.Until(first, e.Sent, e.Answer)) // answers may overtake each other
	k.failures, k.err = 0, nil
	k.sawReport(e.Answer.Record.ProgressAt, e.Answer.Now, e.Sent)
	o.Idle = max(now.Sub(k.progress), 0)
	return o
}

// sawReport notes progress reported through another process, as a record shows it: at reported, when the store's clock stood at now and the local
// one at local.
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

// cutoff is when the context ends: the notice before the deadline.
func (k *Keeper) cutoff() clock.Instant { return k.deadline.Add(-k.terms.Notice) }

// early is from when on the next renewal may begin; one that is open gets its whole interval.
func (k *Keeper) early() clock.Instant {
	if k.open {
		return k.slot
	}
	return k.slot.Add(-k.interval / 8)
}

// next is when the renewal after one at i begins.
func (k *Keeper) next(i clock.Instant, jitter float64) clock.Instant {
	return i.Add(Spread(k.interval, 0.9, 1, jitter))
}
