package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
)

// mostKept is how many unused resources a gate keeps for all of Idle. Each
// costs the renewals of a lease.
const mostKept = 1 << 10

// MostOpenGuards bounds how many guards of marks a gate keeps open between
// writes, and how many it uses at once. Each may have connections of its own,
// and servers allow few.
const MostOpenGuards = 32

// Gate lets writes to resources in, one at a time, and only those whose stamps
// still count. It is safe for concurrent use. The package comment says on which
// promise it relies.
type Gate struct {
	// Options are as New has filled them in.
	Options Options
	// Clock is the system's. Tests set another one before the first write.
	Clock clock.Clock
	// Settled, if set, says whether nothing is on its way any more. Tests set
	// it, because they can look into the service.
	Settled func(resource string) bool
	// Flaw breaks the gate on purpose, for tests of the tests.
	Flaw struct {
		Unserialised bool // the check is made in turn, the write is not
		// JudgesByMarkAlone: a gate that refuses nothing raises the mark for a
		// write that the store refuses.
		JudgesByMarkAlone bool
	}

	mu         sync.Mutex
	resources  map[string]*resourceState
	clients    clients
	closed     bool
	tidying    bool
	done       chan struct{} // closed by Close
	openGuards atomic.Int64  // how many guards of marks are open
	guardSlots chan struct{} // has one entry per guard in use
}

// New makes a gate. Its error matches fence.ErrInvalid. Close the gate when it
// is no longer used.
func New(o Options) (*Gate, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	return &Gate{
		Options: o, Clock: clock.System(), resources: map[string]*resourceState{},
		clients: clients{each: map[string]*usage{}}, done: make(chan struct{}),
		guardSlots: make(chan struct{}, MostOpenGuards),
	}, nil
}

// Write is one write that asks to be let in.
type Write struct {
	Resource string
	Stamp    fence.Stamp
	Stamped  bool   // if it is false, the write takes its turn, and no mark is asked
	What     string // an HTTP method or the name of a tool, for events
	Client   string // counts the write against its bounds; see clients
}

// Arrival is a write at the gate, from before its body is received until it has
// been answered. It counts against its client, and keeps its resource in use.
type Arrival struct {
	s     *resourceState
	w     Write
	bytes int64 // how much of its body is kept; under the gate's mutex
}

// Arrive counts a write against its client. It refuses what can be refused
// before the body is received. Call Depart when the write has been answered.
func (g *Gate) Arrive(ctx context.Context, w Write) (*Arrival, error) {
	s, err := g.join(w.Resource, w.Client)
	if err != nil {
		return nil, err
	}
	a := &Arrival{s: s, w: w}
	err = a.refuseEarly(ctx)
	if err == nil { // check before the gate takes a lease for it
		err = g.checkCurrent(ctx, w, func(error) {})
	}
	if err != nil {
		a.Depart()
		return nil, err
	}
	return a, nil
}

// Depart ends the stay of a write at the gate.
func (a *Arrival) Depart() { a.s.g.part(a) }

// wait waits for the write's turn.
func (a *Arrival) wait(ctx context.Context) error {
	err := a.s.turn.take(ctx, a.w.Stamp, a.s.g.done)
	if err != nil && ctx.Err() != nil && !guard.Refused(err) {
		return &Refusal{
			Status: http.StatusServiceUnavailable, Code: "held", Retry: time.Second, Err: err,
			Say: "another write to this resource is under way and did not end in time; nothing was sent, try again",
		}
	}
	return err
}

// Enter waits for the write's turn and decides whether it is let in. The caller
// must end the passage that it returns.
func (a *Arrival) Enter(ctx context.Context) (*Passage, error) {
	s, w := a.s, a.w
	ctx, cancel := context.WithTimeout(ctx, s.g.Options.Wait)
	defer cancel()
	for {
		if err := a.wait(ctx); err != nil {
			return nil, err
		}
		p, err := s.admit(ctx, w)
		if err == nil {
			return p, nil
		}
		s.leave()
		if !errors.Is(err, errOutranked) {
			return nil, err
		}
	}
}

// errOutranked makes a write give its turn to a newer one.
var errOutranked = errors.New("a write of a newer owner waits")

// errClosing refuses writes that arrive, or still wait, when the gate closes.
var errClosing = &Refusal{
	Status: http.StatusServiceUnavailable, Code: "held", Retry: time.Second,
	Say: "this proxy is stopping; nothing was sent, try again",
}

// join returns the state of a resource, and makes it if there is none. It
// counts one more write of the client.
func (g *Gate) join(resource, client string) (*resourceState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosing
	}
	s := g.resources[resource]
	if err := g.clients.admit(client, s == nil, &g.Options); err != nil {
		return nil, err
	}
	if s == nil {
		s = &resourceState{g: g, resource: resource, client: client}
		g.resources[resource] = s
		g.clients.count(client, usage{resources: 1})
		if !g.tidying {
			g.tidying = true
			go g.tidy()
		}
	}
	g.clients.count(client, usage{writes: 1})
	s.users++
	return s, nil
}

func (g *Gate) part(a *Arrival) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a.s.users--
	g.clients.count(a.w.Client, usage{writes: -1, bytes: -a.bytes})
}

// idle is how long an unused resource is kept. If there are very many
// resources, it is less than Idle, and the next write takes the lease again.
func (g *Gate) idle() time.Duration {
	return g.Options.Idle / time.Duration(max(1, len(g.resources)/mostKept))
}

// tidy gives back the leases of unused resources until the gate closes.
func (g *Gate) tidy() {
	every := min(max(g.Options.Idle/4, 10*time.Millisecond), 5*time.Second)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.done:
			return
		}
		g.mu.Lock()
		idle := g.idle()
		states := make([]*resourceState, 0, len(g.resources))
		for _, s := range g.resources {
			if s.users == 0 {
				states = append(states, s)
			}
		}
		g.mu.Unlock()
		for _, s := range states {
			s.releaseIdle(idle)
		}
	}
}

// Close lets no more writes in and refuses those that wait. It waits until ctx
// ends for the writes that are inside, and gives the leases back. So another
// gate can go on at once where nothing is in doubt.
//
// If writes are still inside when ctx ends, Close leaves their leases to lapse,
// and its error names the resources.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	close(g.done)
	states := make([]*resourceState, 0, len(g.resources))
	for _, s := range g.resources {
		states = append(states, s)
	}
	g.mu.Unlock()
	var wait sync.WaitGroup
	left := make(chan string, len(states))
	for _, s := range states {
		wait.Go(func() {
			if s.turn.take(ctx, fence.Stamp{}, nil) == nil {
				s.end(context.WithoutCancel(ctx)) // the turn is kept: nobody comes in any more
			} else {
				left <- s.resource
			}
		})
	}
	wait.Wait()
	close(left)
	var inside []string
	for resource := range left {
		inside = append(inside, resource)
	}
	if len(inside) > 0 {
		slices.Sort(inside)
		return fmt.Errorf("closed while writes were under way to %s; what follows there waits for the settle time",
			strings.Join(inside, ", "))
	}
	return nil
}
