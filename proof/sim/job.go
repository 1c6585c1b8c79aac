package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// acquisition is an acquire that a job wants, with its resources.
type acquisition struct {
	policy renewal.Policy
	req    tenure.Request // without its secret
	guards []*resource    // named in the request: raised at the grant, and read
	blind  []*resource    // not named: written without reading
}

// job is a loop in a client: wait for a key, raise the fence, read, write now
// and then, release the key, and again.
type job struct {
	c       *client
	name    string
	call    *pending // the acquire in flight
	forever bool     // it waits without a limit
	l       *lease
}

// begin asks for a key.
func (j *job) begin() {
	c := j.c
	if c.w.final || c.closing || j.call != nil || j.l != nil {
		return
	}
	want, wait := j.draw(), engine.Forever
	switch n := c.rng.IntN(100); {
	case n < 15:
		wait = 0
		c.w.cover("engine", "single try")
	case n < 45:
		wait = upTo(c.rng, 2*want.policy.TTL)
	}
	leaves := chance(c.rng, 12)
	j.forever = wait == engine.Forever && !leaves && want.req.Every == 0
	p := j.acquire(want, wait)
	if leaves && j.call == p {
		c.leave(p, upTo(c.rng, 2*want.policy.TTL))
	}
}

// acquire begins to wait for a key.
func (j *job) acquire(want acquisition, wait time.Duration) *pending {
	p := &pending{job: j, want: want, Call: engine.Call{
		Request: want.req, Policy: want.policy, WaitFor: wait, Guarded: len(want.guards) > 0,
	}}
	p.then = func() { j.answered(p) }
	j.call = p
	j.c.w.judge.begins(p)
	j.c.begin(p)
	return p
}

// draw makes up a random acquisition.
func (j *job) draw() acquisition {
	c, r := j.c, j.c.rng
	key := c.w.keys[0]
	if n := len(c.w.keys); c.w.profile.Keys > 0 {
		key = c.w.keys[r.IntN(n)]
	} else if n > 1 && chance(r, 60) { // the first key is popular, the last is rare
		key = c.w.keys[r.IntN(n-1)]
		if chance(r, 8) {
			key = c.w.keys[n-1]
		}
	}
	ttl := []time.Duration{2 * time.Second, 4 * time.Second, 9 * time.Second}[r.IntN(3)]
	want := acquisition{policy: renewal.Policy{TTL: ttl, MaxFailures: 3}}
	want.req = tenure.Request{Verb: tenure.Acquire, Key: key, Owner: c.name, Instance: c.instance, TTL: ttl}
	switch r.IntN(8) {
	case 0:
		want.req.Every = 2 * ttl
	case 1:
		want.req.HoldFor = ttl
	case 2:
		want.policy.StallAfter = ttl / 2
	case 3:
		want.policy.MaxHold = ttl
	case 4:
		want.policy.Notice = ttl / 4
	case 5:
		want.policy.MaxFailures = 1
	}
	names := !chance(r, cmp.Or(c.w.profile.Blind, 20))
	for _, res := range c.w.resources {
		switch {
		case res.key != key:
		case names:
			want.guards = append(want.guards, res)
			want.req.Guards = append(want.req.Guards, res.name)
		default:
			want.blind = append(want.blind, res)
		}
	}
	return want
}

// answered takes the reply to an acquire.
func (j *job) answered(p *pending) {
	c, err := j.c, p.Reply.Err
	j.call = nil
	if err != nil {
		c.w.judge.refused(p, err)
		c.w.say(j.name, "goes without: %v", err)
		j.later()
		return
	}
	l := c.leaseOf(p)
	c.w.say(j.name, "holds %s, token %s, for %s by its own clock", l.Key, short(l.Token), l.Deadline().Sub(c.Now()))
	j.l = l
	switch {
	case l.Lost != nil:
		j.lost(l)
	case c.w.final:
		j.release(l, true)
	default:
		l.zombie = chance(c.rng, cmp.Or(c.w.profile.Zombies, 30))
		l.rest = 1 + c.rng.IntN(8)
		j.read(l)
	}
}

// later begins again after a while.
func (j *job) later() { j.c.soon(j.c.w.now+upTo(j.c.rng, 2*time.Second), j.begin) }

// read reads all guarded resources first. The holder's writes rest on the
// versions that it reads.
func (j *job) read(l *lease) {
	due := len(l.want.guards)
	if due == 0 {
		j.work(l)
		return
	}
	for _, res := range l.want.guards {
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

// work does one step of work, and schedules the next.
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
	c.soon(c.w.now+between(r, l.want.policy.TTL/10, l.want.policy.TTL/2), func() { j.work(l) })
}

// write writes to a resource that was read. A holder checks its lease first,
// unless it is a zombie. Fences are for what happens after that check.
func (j *job) write(l *lease) {
	r := j.c.rng
	resources := slices.Concat(l.want.guards, l.want.blind)
	res := resources[r.IntN(len(resources))]
	version, read := l.seen[res]
	if len(l.want.blind) > 0 {
		version, read = blindly, true
	}
	if !l.zombie && !l.believes() { // asking the engine also ends the lease
		j.c.engine.Check(j.c.Now(), l.Lease)
		j.c.carryOut()
		return
	}
	if !read {
		return
	}
	stamp := l.Stamp()
	if chance(r, 70) {
		l.seq++
		stamp.Seq = l.seq
	}
	j.put(l, res, stamp, version, 2)
}

// put writes, and repeats the write if its outcome is unknown.
func (j *job) put(l *lease, res *resource, stamp fence.Stamp, version, tries int) {
	res.write(j.c, stamp, version, func(err error) {
		switch {
		case err == nil || tries == 0:
		case errors.Is(err, store.ErrUnknown):
			j.put(l, res, stamp, version, tries-1)
		case errors.Is(err, fence.ErrStale), errors.Is(err, fence.ErrCollision):
			l.rest = min(l.rest, 1) // it was replaced; a zombie tries once more
		}
	})
}

// report reports progress, or saves a checkpoint.
func (j *job) report(l *lease) {
	req := tenure.Request{Verb: tenure.Report, Key: l.Key, Secret: l.Secret, Progress: "going on"}
	if l.rest%2 == 0 {
		req = tenure.Request{
			Verb: tenure.Checkpoint, Key: l.Key, Secret: l.Secret,
			Checkpoint: fmt.Sprintf("token %d, write %d", l.Token, l.seq),
		}
	}
	p := &pending{then: func() {}, Call: engine.Call{Request: req, Lease: l.Lease, Bound: actBound}}
	j.c.begin(p)
	if chance(j.c.rng, 10) {
		j.c.leave(p, upTo(j.c.rng, time.Second))
	}
}

// release ends the work and releases the key.
func (j *job) release(l *lease, success bool) {
	if j.l == l {
		j.l = nil
	}
	j.giveBack(l, success)
	if j.call == nil && j.l == nil {
		j.later()
	}
}

func (j *job) giveBack(l *lease, success bool) {
	c := j.c
	c.w.say(j.name, "releases %s, token %s", l.Key, short(l.Token))
	for range 1 + c.rng.IntN(16)/15 { // sometimes twice
		p := &pending{Call: engine.Call{
			Request: tenure.Request{Verb: tenure.Release, Key: l.Key, Secret: l.Secret, Failed: !success},
			Lease:   l.Lease, Bound: releaseBound,
		}}
		p.then = func() {
			if g := l.g; p.Reply.Err == nil && p.Reply.Lost == nil && g != nil && g.fate == alive &&
				!g.lost && !g.shaken {
				c.w.fail(OneTruth, "%s was told that %s is released; it is not", c.name, l.Key)
			}
		}
		c.begin(p)
		if chance(c.rng, 10) {
			c.leave(p, upTo(c.rng, time.Second))
		}
	}
}

// lost handles the end of a lease, whatever ended it.
func (j *job) lost(l *lease) {
	c, why := j.c, l.Lost.Loss
	if j.l != l {
		return
	}
	j.l = nil
	byTime := why == renewal.Expired || why == renewal.Unreachable
	switch {
	case byTime && !l.Given && chance(c.rng, 50) && !c.w.final && !c.closing:
		j.resume(l)
		return
	case why != renewal.Superseded && why != renewal.TakenOver && why != renewal.Released && chance(c.rng, 60):
		j.giveBack(l, false)
	}
	j.later()
}

// resume tries to resume a lease that ended by time.
func (j *job) resume(l *lease) {
	c := j.c
	c.w.say(j.name, "tries to resume %s, token %s", l.Key, short(l.Token))
	p := &pending{job: j, want: l.want, Call: engine.Call{
		Request: tenure.Request{Verb: tenure.Renew, Key: l.Key, Secret: l.Secret, Resume: true},
		Lease:   l.Lease, Bound: actBound,
	}}
	p.then = func() {
		if p.Reply.Lease == nil {
			j.later()
			return
		}
		again := c.leaseOf(p)
		c.w.cover("lease", "resumed")
		c.w.say(j.name, "has resumed %s, token %s", l.Key, short(again.Token))
		if again.Token != l.Token {
			c.w.fail(OneTruth, "%s has resumed %s with token %s; the lease it had lost was of token %s",
				j.name, l.Key, short(again.Token), short(l.Token))
		}
		again.zombie, again.rest, again.seq, again.seen = l.zombie, l.rest, l.seq, l.seen
		l.zombie = false
		j.l = again
		if again.Lost != nil || c.w.final {
			j.release(again, false)
			return
		}
		j.work(again)
	}
	c.begin(p)
}
