package sim

import (
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// nemesis makes the faults of the world happen, one after the other.
func (w *world) nemesis() {
	r := w.stream("nemesis")
	var next func()
	n := 0
	next = func() {
		if w.calm {
			return
		}
		n++
		// Draw all numbers even if the fault does not happen, so that leaving
		// one out does not change the next.
		f := w.profile.draw(r)
		blow := blow{
			client: w.clients[r.IntN(len(w.clients))], key: w.keys[r.IntN(len(w.keys))],
			brief: skewed(r, longestStop), away: upTo(r, 6*time.Second), down: upTo(r, 3*time.Second),
			writes: 1 + r.IntN(12), ppm: r.Int64N(2*mostSkew+1) - mostSkew,
			step: between(r, -time.Hour, time.Hour), choice: r.IntN(100),
			ttl: []time.Duration{2 * time.Second, 5 * time.Second}[r.IntN(2)],
		}
		if chance(r, 50) {
			blow.step /= 1000
		}
		if !chance(r, 20) { // leave the last key alone, so that its record is dropped
			blow.key = w.keys[r.IntN(max(len(w.keys)-1, 1))]
		}
		if f >= 0 && w.fires(Firing{f, n}) {
			w.strike(f, blow)
		}
		w.at(w.now+between(r, 200*time.Millisecond, 3*time.Second), next)
	}
	w.at(time.Second, next)
}

// blow has the parameters of a fault of the world.
type blow struct {
	client            *client
	key               string
	brief, away, down time.Duration
	writes            int
	ppm               int64
	step              time.Duration
	choice            int
	ttl               time.Duration
}

func (w *world) strike(f Fault, b blow) {
	base, c := w.store.base(), b.client
	switch f {
	case Crash:
		w.say(c.name, "dies, and comes back in %s", b.away)
		c.crash(b.away)
	case Shutdown:
		c.soon(w.now, func() { c.close(b.away) })
	case Pause:
		w.say(c.name, "is stopped for %s", b.brief)
		c.stop(b.brief)
	case Suspend:
		w.say(c.name, "sleeps for %s", b.brief)
		c.sleep(b.brief)
	case CutOff:
		w.say(c.name, "is cut off from the store for %s", b.brief)
		c.cut = max(c.cut, w.now+b.brief)
	case ClientRate:
		w.say(c.name, "has a clock that is fast by %.2f %% from now on", float64(b.ppm)/1e4)
		c.pace(b.ppm)
		for _, l := range c.leases {
			c.watchDeadline(l)
		}
	case StoreRate:
		w.say("store", "has a clock that is fast by %.2f %% from now on", float64(b.ppm)/1e4)
		base.clock.pace(w.now, b.ppm)
	case StoreStep:
		w.say("store", "has its clock set by %s", b.step)
		base.clock.step(w.now, b.step)
	case Restart:
		w.outage("is restarted", b.down)
	case Failover:
		n := base.since(w.now - w.store.(*redisServer).lag)
		w.outage("fails over", b.down)
		base.rewind(n, "failover")
	case Rewind:
		w.outage("is put back to an older state", b.down)
		base.rewind(b.writes, "rewind")
	case Wipe:
		w.outage("is wiped", b.down)
		base.rewind(len(base.written), "wipe")
	case RowLocked:
		if w.store.(*postgresServer).lockRow(b.key, b.brief/2) {
			w.say("store", "%s: its row is locked by another for %s", b.key, b.brief/2)
		}
	case Operator:
		w.operate(b)
	case Forgery:
		w.forge(b)
	case ByDeed:
		w.actByDeed(b)
	case Sweep:
		w.store.(*casServer).sweep(c)
	}
}

// outage makes the store unreachable for a while, and breaks all watches.
func (w *world) outage(how string, down time.Duration) {
	base := w.store.base()
	w.say("store", "%s: down for %s", how, down)
	base.down = max(base.down, w.now+down)
	w.store.halt()
	watches := base.watches
	base.watches = nil
	for _, t := range watches {
		t.c.soon(w.now, t.broken)
	}
}

// operate does an operator's act, and raises the fences after it.
func (w *world) operate(b blow) {
	op := w.operator
	req := tenure.Request{
		Verb: tenure.Takeover, Key: b.key, Secret: w.secret(), Owner: op.name, Instance: op.name,
		Actor: op.name, Note: "by hand", TTL: b.ttl,
	}
	switch {
	case b.choice < 30:
		req.Verb, req.Owner = tenure.Reserve, b.client.name
	case b.choice < 60:
		req.Verb, req.Owner, req.Instance, req.TTL = tenure.Revoke, "", "", 0
	}
	w.say(op.name, "begins a %s of %s", req.Verb, req.Key)
	op.act(req, func(a store.Answer) {
		g := w.judge.grants[req.Secret.Grant()]
		if g == nil {
			w.fail(OneTruth, "the operator was told of a %s of %s that was not done: %v", req.Verb, req.Key, a.Err)
			return
		}
		if a.Err == nil {
			for _, name := range a.Record.Guards {
				for _, res := range w.resources {
					if res.name == name {
						res.raise(op, a.Record.Stamp(), func(error) {})
					}
				}
			}
		}
		if req.Verb == tenure.Takeover && b.choice%2 == 0 {
			op.soon(w.now+b.ttl/2, func() {
				op.act(tenure.Request{Verb: tenure.Release, Key: req.Key, Secret: req.Secret}, func(store.Answer) {})
			})
		}
	})
}

// actByDeed lets another process act on a lease, by its deed.
func (w *world) actByDeed(b blow) {
	if len(b.client.leases) == 0 {
		return
	}
	l := b.client.leases[b.choice%len(b.client.leases)]
	req := tenure.Request{Verb: tenure.Report, Key: l.Key, Secret: l.Secret, Progress: "by deed"}
	switch {
	case b.choice < 30:
		req.Verb, req.Progress = tenure.Renew, ""
	case b.choice < 50:
		req.Verb, req.Progress, l.g.byDeed = tenure.Release, "", true
	}
	w.say(w.operator.name, "begins a %s of %s by the deed of %s", req.Verb, l.Key, b.client.name)
	w.operator.act(req, func(a store.Answer) {
		if a.Err == nil {
			w.cover("by deed", string(req.Verb))
		}
	})
}

// forge acts with a secret that was never granted, or with a stamp at another
// key's resource. Neither may have any effect.
func (w *world) forge(b blow) {
	c := b.client
	if b.choice < 40 && len(c.leases) > 0 {
		l := c.leases[b.choice%len(c.leases)]
		for _, res := range w.resources {
			if res.key != l.Key && !res.mark.IsZero() {
				res.write(c, l.Stamp(), 0, func(error) {})
				return
			}
		}
	}
	verb := []tenure.Verb{tenure.Renew, tenure.Release, tenure.Report, tenure.Checkpoint}[b.choice%4]
	req := tenure.Request{Verb: verb, Key: b.key, Secret: w.secret(), Resume: verb == tenure.Renew && b.choice%2 == 0}
	w.operator.act(req, func(a store.Answer) {
		if a.Err == nil {
			w.fail(WrongGrant, "a %s of %s with a secret that was never granted was answered as done", verb, b.key)
		}
	})
}
