package chaos

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/test/faultnet"
	"github.com/croft-dev/croft/proof/history"
)

// storm fires faults at a run until it is told to end. Each fault is undone
// when its time is over, and at the end all are. The package comment says which
// goroutine uses which fields.
type storm struct {
	ttl     time.Duration
	fleet   *fleet
	testbed *testbed
	rec     *history.Recorder
	random  *rand.Rand
	fired   map[string]int

	clients []fault // shuffled; see pick
	servers []fault
	due     []undo

	mu     sync.Mutex
	errs   []error
	busy   bool          // a server fault is in flight
	over   chan struct{} // closed when the last server fault is over
	rewind int64         // the number of the rewind that is being recorded
}

type undo struct {
	at time.Time
	do func()
}

func newStorm(b Backend, f *fleet, rec *history.Recorder, seed uint64) *storm {
	s := &storm{
		ttl: b.TTL, fleet: f, testbed: f.testbed, rec: rec, fired: map[string]int{},
		random: rand.New(rand.NewPCG(seed, 1)),
	}
	s.clients = clientFaults()
	if len(f.testbed.hosts) > 0 {
		s.clients = append(s.clients, linkFaults()...)
	}
	shuffled(s.random, s.clients)
	s.servers = shuffled(s.random, serverFaults(f.testbed))
	return s
}

// rage fires faults until ctx ends.
func (s *storm) rage(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var nextClient, nextServer time.Time
	firstClient, firstServer := len(s.clients), len(s.servers)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.settle(time.Now())
		for _, m := range s.fleet.members {
			s.note(m.check())
		}
		if time.Now().After(nextClient) {
			s.fire(s.pick(s.clients, &firstClient))
			// At this rate about half of the clients have a fault at a
			// time.
			nextClient = time.Now().Add(s.upTo(s.ttl * 6 / time.Duration(len(s.fleet.members))))
		}
		if len(s.servers) > 0 && !s.occupied() {
			if nextServer.IsZero() { // the last fault is over
				nextServer = time.Now().Add(s.upTo(cmp.Or(s.testbed.gap, 4*s.ttl)))
			} else if time.Now().After(nextServer) {
				s.fire(s.pick(s.servers, &firstServer))
				nextServer = time.Time{}
			}
		}
	}
}

// pick returns each fault of the list once, and after that any of them,
// weighted by often.
func (s *storm) pick(list []fault, first *int) fault {
	if *first > 0 {
		*first--
		return list[*first]
	}
	all := 0
	for _, f := range list {
		all += f.often
	}
	n := s.random.IntN(all)
	for _, f := range list {
		if n -= f.often; n < 0 {
			return f
		}
	}
	return list[0]
}

func (s *storm) fire(f fault) {
	e, err := f.begin(s)
	s.note(err)
	if e == nil {
		return
	}
	s.fired[f.name]++
	if e.undo == nil {
		return
	}
	id := s.rec.Begin(history.Call{Kind: history.Fault, Victim: e.victim, Note: f.name})
	s.later(e.lasts, func() {
		e.undo()
		s.rec.End(id, history.Result{Outcome: history.OK})
	})
}

func (s *storm) later(d time.Duration, do func()) { s.due = append(s.due, undo{time.Now().Add(d), do}) }

// settle undoes the faults that are due.
func (s *storm) settle(now time.Time) {
	due := s.due
	s.due = nil
	var rest []undo
	for _, u := range due {
		if u.at.After(now) {
			rest = append(rest, u)
			continue
		}
		u.do()
	}
	s.due = append(s.due, rest...)
}

// calm undoes all faults, and waits until all servers are up again.
func (s *storm) calm() error {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over != nil {
		<-over
	}
	for len(s.due) > 0 {
		s.settle(time.Now().Add(24 * time.Hour))
	}
	for _, m := range s.fleet.members {
		m.setFault(faultnet.Fault{})
		m.resume()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// aside runs a server fault on a goroutine of its own.
func (s *storm) aside(name string, what func()) {
	id := s.rec.Begin(history.Call{Kind: history.Fault, Note: name})
	s.mu.Lock()
	s.busy, s.over = true, make(chan struct{})
	over := s.over
	s.mu.Unlock()
	go func() {
		err := s.testbed.stand.try(what)
		s.rec.End(id, history.Result{Outcome: history.OK})
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.errs = append(s.errs, err)
		}
		s.busy = false
		close(over)
	}()
}

func (s *storm) occupied() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

// rewinding records when a loss of the lease store's memory begins and ends.
func (s *storm) rewinding(begun bool) {
	if begun {
		s.rewind = s.rec.Begin(history.Call{Kind: history.Rewind})
		return
	}
	s.rec.End(s.rewind, history.Result{Outcome: history.OK})
}

// neverFired lists the faults that did not happen.
func (s *storm) neverFired() []string {
	var names []string
	for _, f := range slices.Concat(s.clients, s.servers) {
		if s.fired[f.name] == 0 {
			names = append(names, f.name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *storm) note(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.errs, err) {
		s.errs = append(s.errs, err)
	}
}
