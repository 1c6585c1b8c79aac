package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// lease is one term as its holder sees it.
type lease struct {
	c      *client
	job    *job
	claim  claim
	secret tenure.Secret
	grant  fence.Grant
	token  fence.Token
	keeper keep.Keeper
	since  instant
	alone  bool
	g      *grant // in truth

	zombie bool // its work does not stop when it should
	rest   int  // steps of work that are left
	seq    uint64
	seen   map[*resource]int // the versions its work rests on
}

type timeOf = time.Time

func (l *lease) key() string { return l.claim.req.Key }

func (l *lease) stamp() fence.Stamp {
	return fence.Stamp{Key: l.key(), Token: l.token, Grant: l.grant}
}

// deadline is until when the holder takes itself for one.
func (l *lease) deadline() clock.Instant {
	if l.c.w.mutant.is(NoMargin) {
		return l.keeper.Deadline().Add(l.claim.terms.Margin())
	}
	return l.keeper.Deadline()
}

// believes is what the holder takes for true by its own clock alone: also while it is stopped, also when it is about to find out.
func (l *lease) believes() bool {
	if l.c.w.mutant.is(EndsOnlyWhenTold) {
		switch l.keeper.Lost() {
		case "", keep.Expired, keep.Unreachable:
			return true
		}
	}
	return l.keeper.Lost() == "" && l.c.Now() < l.deadline()
}

// hold begins to keep a lease.
func (c *client) hold(j *job, cl claim, secret tenure.Secret, a store.Answer, deadline, since instant) *lease {
	l := &lease{
		c: c, job: j, claim: cl, secret: secret, grant: secret.Grant(), token: a.Record.Token, since: since,
		keeper: keep.NewKeeper(cl.terms, deadline, since, c.Now(), a.Record, c.rng.Float64()),
		seen:   map[*resource]int{},
	}
	c.leases = append(c.leases, l)
	c.w.judge.holds(l)
	c.ward()
	c.watchDeadline(l)
	return l
}

// watchDeadline lets the judge look at the last moment of belief.
func (c *client) watchDeadline(l *lease) {
	at := c.truth(l.deadline()) - time.Microsecond
	c.w.at(at, func() { c.w.judge.belief(l) })
}

// ward sets the timer to when a machine has something to do.
func (c *client) ward() {
	c.armed++
	n, wake := c.armed, keep.Never
	for _, l := range c.leases {
		wake = min(wake, l.keeper.Wake())
	}
	if wake == keep.Never {
		return
	}
	c.timer(wake.Sub(c.Now()), func() {
		if n == c.armed {
			c.tick()
		}
	})
}

// tick steps every machine that is due, and those that will be soon enough to go along.
func (c *client) tick() {
	now, jitter := c.Now(), c.rng.Float64()
	if !slices.ContainsFunc(c.leases, func(l *lease) bool { return l.keeper.Wake() <= now }) {
		c.ward()
		return
	}
	var orders batches
	for _, l := range slices.Clone(c.leases) {
		if l.keeper.Early() <= now {
			l.take(keep.Tick{Jitter: jitter}, &orders)
		}
	}
	c.carryOut(orders)
}

// batches are the renewals that are to be sent, by what may go together.
type batches struct{ fresh, again, alone []*lease }

// step tells one machine of an event.
func (l *lease) step(e keep.Event) {
	var orders batches
	l.take(e, &orders)
	l.c.carryOut(orders)
}

// take tells a machine of an event and sorts what it wants.
func (l *lease) take(e keep.Event, b *batches) {
	o := l.keeper.Step(e, l.c.Now())
	switch {
	case o.Lost != "":
		l.lost(o)
	case o.Renew && l.alone:
		b.alone = append(b.alone, l)
	case o.Renew && o.Again:
		b.again = append(b.again, l)
	case o.Renew:
		b.fresh = append(b.fresh, l)
	case o.Look:
		l.look()
	}
}

func (c *client) carryOut(b batches) {
	c.renew(b.fresh)
	c.renew(b.again)
	for _, l := range b.alone {
		c.renew([]*lease{l})
	}
	c.ward()
}

// renew sends renewals together, at most one for a key.
func (c *client) renew(leases []*lease) {
	for len(leases) > 0 {
		var together, rest []*lease
		var requests []tenure.Request
		for _, l := range leases {
			if slices.ContainsFunc(together, func(other *lease) bool { return other.key() == l.key() }) {
				rest = append(rest, l)
				continue
			}
			together = append(together, l)
			requests = append(requests, tenure.Request{Verb: tenure.Renew, Key: l.key(), Secret: l.secret})
		}
		c.w.say(c.name, "renews %d: %s…", len(together), together[0].key())
		c.apply(requests, func(answers []store.Answer, sent instant) { c.renewed(together, answers, sent) })
		leases = rest
	}
}

// renewed takes the answers. Leases that the store skipped, while it answered for others, are renewed alone the next time.
func (c *client) renewed(leases []*lease, answers []store.Answer, sent instant) {
	skipped := 0
	for i := range answers {
		if errors.Is(answers[i].Err, store.ErrUnknown) {
			skipped++
		}
	}
	var orders batches
	for i, l := range leases {
		a := answers[i]
		l.alone = errors.Is(a.Err, store.ErrUnknown) && (skipped < len(leases) || l.alone)
		told := errors.Is(a.Err, tenure.ErrNotOwned)
		if told && c.w.mutant.is(NotOwnedIsRetried) {
			a = store.Failed(1, a.Err)[0]
			a.Err = store.Unknown(errTimeout)
		}
		l.take(keep.Answered{Sent: sent, Answer: a}, &orders)
		if told {
			c.w.judge.told(l)
		}
		if l.keeper.Lost() == "" {
			c.w.judge.belief(l)
			c.watchDeadline(l)
		}
	}
	c.carryOut(orders)
}

// look reads the record of a stalled lease: another process may have reported progress.
func (l *lease) look() {
	l.c.w.ops++
	l.c.w.store.get(l.c, l.key(), func(rec tenure.Record, now time.Time, err error) {
		if err == nil && rec.Grant == l.grant {
			l.step(keep.Looked{Record: rec, Now: now})
		}
	})
}

// lost takes notice of the end.
func (l *lease) lost(o keep.Orders) {
	c := l.c
	if !c.w.mutant.is(EndsOnlyWhenTold) || o.Lost == keep.Released {
		c.leases = slices.DeleteFunc(c.leases, func(other *lease) bool { return other == l })
	}
	c.w.cover("loss", string(o.Lost))
	if o.Lost != keep.Released {
		c.w.say(c.name, "has lost %s, token %s: %s", l.key(), short(l.token), o.Lost)
	}
	l.job.lost(l, o.Lost)
}
