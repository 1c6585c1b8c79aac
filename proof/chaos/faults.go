package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/internal/test/faultnet"
)

// fault is one kind of fault.
type fault struct {
	name  string
	often int // the weight in storm.pick, after each fault happened once
	// begin begins the fault. It returns nil if there is no victim.
	begin func(s *storm) (*injected, error)
}

// injected is a fault that has begun: its victim, and how to undo it.
type injected struct {
	victim string // a client; "" if the victim is a server
	lasts  time.Duration
	undo   func() // nil if the fault undoes itself
}

// pauses are how long a client is stopped, in TTLs: too short to lose its
// lease, just long enough, and much longer.
var pauses = []float64{0.5, 1.1, 3}

func (s *storm) ttls(n float64) time.Duration { return time.Duration(n * float64(s.ttl)) }

// clientFaults returns the faults of a single client process.
func clientFaults() []fault {
	var list []fault
	for _, n := range pauses {
		list = append(list, fault{fmt.Sprintf("stop %.1f TTL", n), 4, func(s *storm) (*injected, error) {
			return s.stop(s.running(), s.ttls(n))
		}})
	}
	return append(list, fault{"kill", 2, func(s *storm) (*injected, error) {
		m := s.running()
		if m == nil {
			return nil, nil
		}
		m.kill()
		return &injected{m.name, s.upTo(s.ttl / 4), func() { s.note(m.start()) }}, nil
	}})
}

// linkFaults returns the faults of one client's links to the servers.
func linkFaults() []fault {
	var list []fault
	bad := func(name string, often int, kind faultnet.Kind, most func(s *storm) time.Duration) {
		list = append(list, fault{name, often, func(s *storm) (*injected, error) {
			m := s.anybody()
			m.setFault(faultnet.Fault{Kind: kind, Delay: s.upTo(s.ttl * 3 / 2)})
			return &injected{m.name, most(s), func() { m.setFault(faultnet.Fault{}) }}, nil
		}})
	}
	bad("slow", 3, faultnet.Slow, func(s *storm) time.Duration { return s.upTo(3 * s.ttl) })
	bad("cut after upload", 3, faultnet.Cut, func(s *storm) time.Duration { return s.upTo(s.ttl) })
	bad("blackhole", 2, faultnet.Hole, func(s *storm) time.Duration { return s.upTo(2 * s.ttl) })
	bad("blackhole then late", 2, faultnet.Vault, func(s *storm) time.Duration { return s.upTo(3 * s.ttl) })
	return append(list, fault{"stop and slow", 4, func(s *storm) (*injected, error) {
		m := s.running()
		if m == nil {
			return nil, nil
		}
		m.setFault(faultnet.Fault{Kind: faultnet.Slow, Delay: s.upTo(s.ttl * 3 / 2)})
		e, err := s.stop(m, s.ttls(pauses[s.random.IntN(len(pauses))]))
		e.undo = func() {
			m.resume()
			s.later(s.upTo(s.ttl), func() { m.setFault(faultnet.Fault{}) })
		}
		return e, err
	}})
}

// serverFaults returns the faults of the servers. They happen one at a time,
// and take as long as they take.
func serverFaults(g *testbed) []fault {
	var list []fault
	// do adds a fault that begins, waits for at most that many TTLs, and ends.
	do := func(name string, often int, most float64, begin, end func()) {
		list = append(list, fault{name, often, func(s *storm) (*injected, error) {
			down := s.upTo(s.ttls(most))
			s.aside(name, func() {
				begin()
				time.Sleep(down)
				end()
			})
			return &injected{}, nil
		}})
	}
	for _, sv := range g.servers {
		do("kill "+sv.name, cmp.Or(sv.often, 2), 1, sv.kill, sv.restart)
		if sv.pause != nil {
			do("stop "+sv.name, 2, 2, sv.pause, sv.resume)
		}
	}
	if len(g.hosts) > 0 {
		do("outage", 2, 2, func() { g.cutOff(true) }, func() { g.cutOff(false) })
	}
	if g.failover != nil {
		const name = "failover with loss"
		list = append(list, fault{name, 6, func(s *storm) (*injected, error) {
			lag := s.upTo(s.ttl)
			s.aside(name, func() { g.failover(lag, s.rewinding) })
			return &injected{}, nil
		}})
	}
	return list
}

// stop pauses a client for some time. It does nothing if m is nil.
func (s *storm) stop(m *member, lasts time.Duration) (*injected, error) {
	if m == nil {
		return nil, nil
	}
	return &injected{m.name, lasts, m.resume}, m.stop()
}

// anybody returns a random client, whatever its state.
func (s *storm) anybody() *member { return s.fleet.members[s.random.IntN(len(s.fleet.members))] }

// running returns a random client that is neither stopped nor dead, or nil.
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

// upTo returns a random duration between a tenth of most and most.
func (s *storm) upTo(most time.Duration) time.Duration {
	return most/10 + time.Duration(s.random.Int64N(int64(most)*9/10))
}

func shuffled(random *rand.Rand, list []fault) []fault {
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
