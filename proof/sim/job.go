package sim

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// job is a loop of work in a client: wait for a key, raise the fence, read, write now and then, give the key back, and again.
type job struct {
	c    *client
	name string
	u    *pursuit // in front
	l    *lease
	last *lease // for acts with a stamp that may be old
}

// begin asks for a key.
func (j *job) begin() {
	c := j.c
	if c.w.final || j.u != nil || j.l != nil {
		return
	}
	cl := j.draw()
	p := keep.Patience{For: time.Hour}
	if chance(c.rng, 40) {
		p.For = upTo(c.rng, 2*cl.terms.TTL)
	}
	if chance(c.rng, 10) {
		p.After = keep.Courtesy
	}
	leaves := chance(c.rng, 12)
	u := c.pursue(j, cl, p)
	u.forever = p.For == time.Hour && !leaves && cl.req.Every == 0
	j.u = u
	u.step(keep.Tick{})
	if leaves { // the caller loses its patience
		c.soon(c.w.now+upTo(c.rng, 2*cl.terms.TTL), func() {
			if !u.over && !u.behind {
				u.step(keep.Abandoned{Err: errors.New("the caller has left")})
			}
		})
	}
}

// draw makes up what to ask for.
func (j *job) draw() claim {
	c, r := j.c, j.c.rng
	key := c.w.keys[0]
	if n := len(c.w.keys); c.w.profile.Keys > 0 {
		key = c.w.keys[r.IntN(n)]
	} else if n > 1 && chance(r, 60) { // the first is popular, the last is rarely used
		key = c.w.keys[r.IntN(n-1)]
		if chance(r, 8) {
			key = c.w.keys[n-1]
		}
	}
	ttl := []time.Duration{2 * time.Second, 4 * time.Second, 9 * time.Second}[r.IntN(3)]
	cl := claim{terms: keep.Terms{TTL: ttl, MaxFailures: 3}}
	cl.req = tenure.Request{Verb: tenure.Acquire, Key: key, Owner: c.name, Instance: c.instance, TTL: ttl}
	switch r.IntN(8) {
	case 0:
		cl.req.Every = 2 * ttl
	case 1:
		cl.req.HoldFor = ttl
	case 2:
		cl.terms.StallAfter = ttl / 2
	case 3:
		cl.terms.MaxHold = ttl
	case 4:
		cl.terms.Notice = ttl / 4
	case 5:
		cl.terms.MaxFailures = 1
	}
	names := !chance(r, cmp.Or(c.w.profile.Blind, 20))
	for _, res := range c.w.resources {
		switch {
		case res.key != key:
		case names:
			cl.guards = append(cl.guards, res)
			cl.req.Guards = append(cl.req.Guards, res.name)
		default:
			cl.blind = append(cl.blind, res)
		}
	}
	return cl
}

// turnedAway is the end of a wait without a lease.
func (j *job) turnedAway(err error) {
	j.u = nil
	if err != nil && !errors.Is(err, tenure.ErrHeld) {
		j.c.w.say(j.name, "goes without: %v", err)
	}
	j.later()
}

// later begins again after a while.
func (j *job) later() { j.c.soon(j.c.w.now+upTo(j.c.rng, 2*time.Second), j.begin) }

// granted takes a lease, and raises the fence before anything is read.
func (j *job) granted(u *pursuit, a store.Answer, deadline instant) {
	c := j.c
	j.u = nil
	c.w.say(j.name, "holds %s, token %s, for %s by its own clock", u.key(), short(a.Record.Token), deadline.Sub(c.Now()))
	l := c.hold(j, u.claim, u.secret, a, deadline, c.Now())
	j.l, j.last = l, l
	if c.w.final {
		c.w.arrived(u)
		j.release(l, true)
		return
	}
	l.zombie = chance(c.rng, cmp.Or(c.w.profile.Zombies, 30))
	l.rest = 1 + c.rng.IntN(8)
	if len(u.claim.guards) == 0 || c.w.mutant.is(NoRaiseAtGrant) {
		j.read(l)
		return
	}
	j.raise(l)
}

// raise advances the fence at all guards. Where one remembers a newer token than the store's, the lease is asked for once more, above it.
func (j *job) raise(l *lease) {
	c := j.c
	due := len(l.claim.guards)
	var above fence.Token
	var failed error
	hopeless := false
	for _, res := range l.claim.guards {
		res.raise(c, l.stamp(), func(err error) {
			var stale *fence.StaleError
			var refused *fence.RefusedError
			switch {
			case err == nil:
			case errors.As(err, &stale):
				above = max(above, stale.Newest.Token)
			case errors.As(err, &refused) && errors.Is(err, fence.ErrCollision):
				above = max(above, refused.Mark.Token)
			default:
				hopeless = true
			}
			if err != nil {
				failed = err
			}
			if due--; due > 0 || j.l != l {
				return
			}
			if failed == nil {
				j.read(l)
				return
			}
			c.w.say(j.name, "gives %s back: %v", l.key(), failed)
			j.release(l, false)
			if above > 0 && !hopeless && l.claim.req.Above == 0 && !c.w.final {
				cl := l.claim
				cl.req.Above = above
				u := c.pursue(j, cl, keep.Patience{For: time.Hour})
				j.u = u
				u.step(keep.Tick{})
			}
		})
	}
}

// read is the first thing a holder does with what it guards: its writes rest on it.
func (j *job) read(l *lease) {
	due := len(l.claim.guards)
	if due == 0 {
		j.work(l)
		return
	}
	for _, res := range l.claim.guards {
		res.read(j.c, func(version int, err error) {
			if err == nil {
				l.seen[res] = version
			}
			if due--; due == 0 {
				j.work(l)
			}
		})
	}
}

// work does a step and comes back for the next.
func (j *job) work(l *lease) {
	c, r := j.c, j.c.rng
	if j.l != l && !l.zombie || c.w.final {
		return
	}
	if l.rest--; l.rest < 0 {
		if j.l == l {
			j.release(l, chance(r, 70))
		}
		return
	}
	switch {
	case chance(r, 65):
		j.write(l)
	case chance(r, 50) && j.l == l:
		j.report(l)
	}
	c.soon(c.w.now+between(r, l.claim.terms.TTL/10, l.claim.terms.TTL/2), func() { j.work(l) })
}

// write writes to a resource that was read. Who is no zombie looks at the clock first; what happens after that look is what fences are for.
func (j *job) write(l *lease) {
	r := j.c.rng
	places := slices.Concat(l.claim.guards, l.claim.blind)
	res := places[r.IntN(len(places))]
	version, read := l.seen[res]
	if len(l.claim.blind) > 0 {
		version, read = blindly, true
	}
	if !read || !l.zombie && !l.believes() {
		return
	}
	stamp := l.stamp()
	if chance(r, 70) {
		l.seq++
		stamp.Seq = l.seq
	}
	j.put(l, res, stamp, version, 2)
}

// put writes, and again if it is not known what has become of it.
func (j *job) put(l *lease, res *resource, stamp fence.Stamp, version, tries int) {
	res.write(j.c, stamp, version, func(err error) {
		switch {
		case err == nil || tries == 0:
		case errors.Is(err, store.ErrUnknown):
			j.put(l, res, stamp, version, tries-1)
		case errors.Is(err, fence.ErrStale), errors.Is(err, fence.ErrCollision):
			l.rest = min(l.rest, 1) // it has been replaced; a zombie tries once more
		}
	})
}

// report tells of progress.
func (j *job) report(l *lease) {
	l.step(keep.Progressed{})
	req := tenure.Request{Verb: tenure.Report, Key: l.key(), Secret: l.secret, Progress: "going on"}
	j.c.ask(req, actBound, func(r reply, known bool) {
		if known && errors.Is(r.answer.Err, tenure.ErrNotOwned) {
			l.step(keep.Answered{Sent: r.sent, Answer: r.answer})
			j.c.w.judge.told(l)
		}
	})
}

// release gives the key back.
func (j *job) release(l *lease, success bool) {
	if j.l == l {
		j.l = nil
	}
	if l.keeper.Lost() == "" {
		l.step(keep.Ended{Loss: keep.Released})
	}
	j.giveBack(l, success)
	if j.u == nil && j.l == nil {
		j.later()
	}
}

func (j *job) giveBack(l *lease, success bool) {
	c := j.c
	c.w.say(j.name, "releases %s, token %s", l.key(), short(l.token))
	req := tenure.Request{Verb: tenure.Release, Key: l.key(), Secret: l.secret, Failed: !success}
	c.ask(req, releaseBound, func(r reply, known bool) {
		if !known || r.answer.Err != nil {
			return
		}
		if g := l.g; g != nil && g.fate == alive && !g.lost && !g.shaken {
			c.w.fail(OneTruth, "%s was told that %s is released; it is not", c.name, l.key())
		}
	})
}

// lost is told that the lease is over, by whatever ended it.
func (j *job) lost(l *lease, why keep.Loss) {
	c := j.c
	if j.l != l {
		return
	}
	j.l = nil
	switch {
	case why == keep.Released:
		return
	case (why == keep.Expired || why == keep.Unreachable) && chance(c.rng, 50) && !c.w.final:
		j.resume(l)
		return
	case why != keep.Superseded && why != keep.TakenOver && chance(c.rng, 60):
		j.giveBack(l, false)
	}
	j.later()
}

// resume takes up a lease that was lost by time.
func (j *job) resume(l *lease) {
	c := j.c
	c.w.say(j.name, "tries to resume %s, token %s", l.key(), short(l.token))
	req := tenure.Request{Verb: tenure.Renew, Key: l.key(), Secret: l.secret, Resume: true}
	c.ask(req, actBound, func(r reply, known bool) {
		if j.l != nil || j.u != nil || !known || r.answer.Err != nil || c.w.final {
			if j.l == nil && j.u == nil {
				j.later()
			}
			return
		}
		if r.answer.Record.Token != l.token && !c.w.mutant.is(ResumesAnew) { // forgotten, and then granted to a late copy of the request: another term
			c.w.cover("lease", "granted anew")
			j.giveBack(l, false)
			j.later()
			return
		}
		until := l.claim.terms.Until(r.first, r.sent, r.answer)
		if c.w.mutant.is(TimeFromLastSend) {
			until = r.sent.Add(l.claim.terms.TTL - l.claim.terms.Margin())
		}
		c.w.cover("lease", "resumed")
		c.w.say(j.name, "has resumed %s, token %s", l.key(), short(l.token))
		again := c.hold(j, l.claim, l.secret, r.answer, until, l.since)
		if again.token != l.token {
			c.w.fail(OneTruth, "%s has resumed %s with token %s; the lease it had lost was of token %s", j.name, l.key(), short(again.token), short(l.token))
		}
		again.zombie, again.rest, again.seq, again.seen = l.zombie, l.rest, l.seq, l.seen
		j.l, j.last = again, again
		if c.Now() >= again.keeper.Ends() {
			again.step(keep.Tick{})
			return
		}
		l.zombie = false
		j.work(again)
	})
}
