package sim

import (
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/tenure"
)

// lease is a lease of the engine, and the state of its holder's work.
type lease struct {
	*engine.Lease
	c    *client
	job  *job
	want acquisition
	g    *grant // the judge's record of it

	resumed bool

	zombie bool // it goes on writing after the lease has ended
	rest   int  // steps of work left
	seq    uint64
	seen   map[*resource]int // the versions that it has read
}

// leaseOf returns the lease that a call was granted.
func (c *client) leaseOf(p *pending) *lease {
	if l, made := p.Reply.Lease.Tag.(*lease); made {
		return l
	}
	l := &lease{
		Lease: p.Reply.Lease, c: c, job: p.job, want: p.want, resumed: p.Lease != nil,
		seen: map[*resource]int{},
	}
	l.Tag = l
	for _, a := range c.asks {
		a.granted = a.granted || a.secret == l.Secret
	}
	if l.Lost == nil {
		c.leases = append(c.leases, l)
	}
	c.w.judge.holds(l)
	c.watchDeadline(l)
	if c.w.final {
		c.w.arrived(l.Key)
	}
	return l
}

// holder returns the live lease that a request is about, or nil. A report or a
// checkpoint may be about the lease that this one resumes.
func (c *client) holder(req tenure.Request) *lease {
	for _, l := range c.leases {
		if l.Secret == req.Secret && !(l.resumed && req.Verb != tenure.Renew) {
			return l
		}
	}
	return nil
}

// believes reports whether the holder would be told that the lease is alive. It
// also counts while the process is stopped and cannot ask.
func (l *lease) believes() bool { return l.Alive(l.c.Now()) }

// watchDeadline makes the judge check the belief just before the deadline.
func (c *client) watchDeadline(l *lease) {
	c.w.at(c.truth(l.Deadline())-time.Microsecond, func() { c.w.judge.belief(l) })
}

// ended handles the end of the lease.
func (l *lease) ended() {
	c, why := l.c, l.Lost.Loss
	c.leases = slices.DeleteFunc(c.leases, func(other *lease) bool { return other == l })
	c.w.cover("loss", string(why))
	if why != renewal.Released {
		c.w.say(c.name, "has lost %s, token %s: %s", l.Key, short(l.Token), why)
	}
	l.job.lost(l)
}
