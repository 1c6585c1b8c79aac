package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/internal/link"
)

// fault is one thing that can be done to a run.
type fault struct {
	name  string
	often int // against the others, after each has been had once
	// begin does it; nil if there was nobody to do it to.
	begin func(s *storm) (*effect, error)
}

// effect is what a fault has done.
type effect struct {
	victim string // a client; "" if it is about a server
	lasts  time.Duration
	undo   func() // nil if it undoes itself
}

// pauses are how long a client is stopped, in TTLs: not long enough to lose its lease, just long enough, and more than that.
var pauses = []float64{0.5, 1.1, 3}

func (s *storm) ttls(n float64) time.Duration { return time.Duration(n * float64(s.ttl)) }

// clientFaults befall one client.
func clientFaults() []fault {
	var list []fault
	for _, n := range pauses {
		list = append(list, fault{fmt.Sprintf("stop %.1f TTL", n), 4, func(s *storm) (*effect, error) {
			return s.stop(s.running(), s.ttls(n))
		}})
	}
	return append(list, fault{"kill", 2, func(s *storm) (*effect, error) {
		m := s.running()
		if m == nil {
			return nil, nil
		}
		m.kill()
		return &effect{m.name, s.upTo(s.ttl / 4), func() { s.note(m.start()) }}, nil
	}})
}

// linkFaults befall the way of one client to its servers.
func linkFaults() []fault {
	var list []fault
	bad := func(name string, often int, kind link.Kind, most func(s *storm) time.Duration) {
		list = append(list, fault{name, often, func(s *storm) (*effect, error) {
			m := s.anybody()
			m.weather(link.Weather{Kind: kind, Delay: s.upTo(s.ttl * 3 / 2)})
			return &effect{m.name, most(s), func() { m.weather(link.Weather{}) }}, nil
		}})
	}
	bad("slow", 3, link.Slow, func(s *storm) time.Duration { return s.upTo(3 * s.ttl) })
	bad("cut after upload", 3, link.Cut, func(s *storm) time.Duration { return s.upTo(s.ttl) })
	bad("blackhole", 2, link.Hole, func(s *storm) time.Duration { return s.upTo(2 * s.ttl) })
	bad("blackhole then late", 2, link.Vault, func(s *storm) time.Duration { return s.upTo(3 * s.ttl) })
	return append(list, fault{"stop and slow", 4, func(s *storm) (*effect, error) {
		m := s.running()
		if m == nil {
			return nil, nil
		}
		m.weather(link.Weather{Kind: link.Slow, Delay: s.upTo(s.ttl * 3 / 2)})
		e, err := s.stop(m, s.ttls(pauses[s.random.IntN(len(pauses))]))
		e.undo = func() {
			m.resume()
			s.later(s.upTo(s.ttl), func() { m.weather(link.Weather{}) })
		}
		return e, err
	}})
}

// serverFaults befall the servers, one at a time; they take as long as they take.
func serverFaults(g *ground) []fault {
	var list []fault
	// do begins something, waits for at most so many TTLs, and ends it.
	do := func(name string, often int, most float64, begin, end func()) {
		list = append(list, fault{name, often, func(s *storm) (*effect, error) {
			down := s.upTo(s.ttls(most))
			s.aside(name, func() {
				begin()
				time.Sleep(down)
				end()
			})
			return &effect{}, nil
		}})
	}
	for _, sv := range g.servers {
		do("kill "+sv.name, 2, 1, sv.kill, sv.restart)
		if sv.pause != nil {
			do("stop "+sv.name, 2, 2, sv.pause, sv.resume)
		}
	}
	if len(g.hosts) > 0 {
		do("outage", 2, 2, func() { g.cutOff(true) }, func() { g.cutOff(false) })
	}
	if g.failover != nil {
		const name = "failover with loss"
		list = append(list, fault{name, 6, func(s *storm) (*effect, error) {
			lag := s.upTo(s.ttl)
			s.aside(name, func() { g.failover(lag, s.rewinding) })
			return &effect{}, nil
		}})
	}
	return list
}

// stop halts a client for some time; nil is nobody.
func (s *storm) stop(m *member, lasts time.Duration) (*effect, error) {
	if m == nil {
		return nil, nil
	}
	return &effect{m.name, lasts, m.resume}, m.stop()
}

// anybody is a client, whatever its state.
func (s *storm) anybody() *member { return s.fleet.members[s.random.IntN(len(s.fleet.members))] }

// running is a client that is neither stopped nor dead, nil if there is none.
func (s *storm) running() *member {
	start := s.random.IntN(len(s.fleet.members))
	for i := range s.fleet.members {
		m := s.fleet.members[(start+i)%len(s.fleet.members)]
		if !m.stopped && !m.gone() {
			return m
		}
	}
	return nil
}

// upTo is a duration between a tenth of most and all of it.
func (s *storm) upTo(most time.Duration) time.Duration {
	return most/10 + time.Duration(s.random.Int64N(int64(most)*9/10))
}

func shuffled(random *rand.Rand, list []fault) []fault {
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
