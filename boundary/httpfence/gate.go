package httpfence

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

// mostOpenGuards bounds how many guards of marks a gate keeps open between
// writes, and how many it uses at once. Each may have connections of its own,
// and servers allow few.
const mostOpenGuards = 32

// Gate lets writes to resources in, one at a time, and only those whose stamps
// still count. It is safe for concurrent use. The package comment says on which
// promise it relies.
type Gate struct {
	o   Options
	clk clock.Clock

	mu         sync.Mutex
	resources  map[string]*resourceState
	clients    clients
	closed     bool
	tidying    bool
	done       chan struct{} // closed by Close
	openGuards atomic.Int64  // how many guards of marks are open
	guardSlots chan struct{} // has one entry per guard in use

	// settled, if set, says whether nothing is on its way any more. Tests set
	// it, because they can look into the service.
	settled func(resource string) bool
	// flaw breaks the gate on purpose, for tests of the tests.
	flaw struct {
		unserialised bool // the check is made in turn, the write is not
		freeOnLeave  bool // a client that leaves gives up the turn of its write
		// judgesByMarkAlone: a gate that refuses nothing raises the mark for a
		// write that the store refuses.
		judgesByMarkAlone bool
	}
}

// NewGate makes a gate. Its error matches fence.ErrInvalid. Close the gate when
// it is no longer used.
func NewGate(o Options) (*Gate, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	return &Gate{
		o: o, clk: clock.System(), resources: map[string]*resourceState{}, clients: clients{each: map[string]*usage{}},
		done: make(chan struct{}), guardSlots: make(chan struct{}, mostOpenGuards),
	}, nil
}

// write is one write that asks to be let in.
type write struct {
	target
	stamp   fence.Stamp
	stamped bool
	what    string // the method
	client  string // counts it against its bounds; see clients
}

// read finds out what a request writes to, and whose it is. If the resource is
// empty, the request is a read.
func (g *Gate) read(r *http.Request) (write, error) {
	to, err := g.o.classify(r)
	if err != nil || to.resource == "" {
		return write{target: to, what: r.Method}, err
	}
	w := write{target: to, what: r.Method, client: clientOf(r)}
	if err := fence.CheckKey(g.o.LeasePrefix + to.resource); err != nil {
		return w, fmt.Errorf("the resource has no name for a lease: %w", err)
	}
	w.stamp, err = StampOf(r.Header)
	if err == nil {
		err = g.o.Keys.Verify(w.stamp)
	}
	switch {
	case err == nil:
		w.stamped = true
	case errors.Is(err, ErrNoStamp) && g.o.AllowUnstamped:
	default:
		return w, err
	}
	if w.stamped && to.key != "" && w.stamp.Key != to.key {
		return w, &fence.RefusedError{Err: fence.ErrWrongKey, Presented: w.stamp, Mark: fence.Mark{Key: to.key}}
	}
	return w, nil
}

// arrival is a write at the gate, from before its body is received until it has
// been answered. It counts against its client, and keeps its resource in use.
type arrival struct {
	s     *resourceState
	w     write
	bytes int64 // how much of its body is kept; under the gate's mutex
}

// arrive counts a write against its client. It refuses what can be refused
// before the body is received. Call depart when the write has been answered.
func (g *Gate) arrive(ctx context.Context, w write) (*arrival, error) {
	s, err := g.join(w.resource, w.client)
	if err != nil {
		return nil, err
	}
	a := &arrival{s: s, w: w}
	err = a.refuseEarly(ctx)
	if err == nil { // check before the gate takes a lease for it
		err = g.checkCurrent(ctx, w, func(error) {})
	}
	if err != nil {
		a.depart()
		return nil, err
	}
	return a, nil
}

func (a *arrival) depart() { a.s.g.part(a) }

// wait waits for the write's turn.
func (a *arrival) wait(ctx context.Context) error {
	err := a.s.turn.take(ctx, a.w.stamp, a.s.g.done)
	if err != nil && ctx.Err() != nil && !guard.Refused(err) {
		return &refusal{
			status: http.StatusServiceUnavailable, code: "held", retry: time.Second, err: err,
			say: "another write to this resource is under way and did not end in time; nothing was sent, try again",
		}
	}
	return err
}

// enter waits for the write's turn and decides whether it is let in. The caller
// must end the passage that it returns.
func (a *arrival) enter(ctx context.Context) (*passage, error) {
	s, w := a.s, a.w
	ctx, cancel := context.WithTimeout(ctx, s.g.o.Wait)
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
var errClosing = &refusal{
	status: http.StatusServiceUnavailable, code: "held", retry: time.Second,
	say: "this proxy is stopping; nothing was sent, try again",
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
	if err := g.clients.admit(client, s == nil, &g.o); err != nil {
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

func (g *Gate) part(a *arrival) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a.s.users--
	g.clients.count(a.w.client, usage{writes: -1, bytes: -a.bytes})
}

// idle is how long an unused resource is kept. If there are very many
// resources, it is less than Idle, and the next write takes the lease again.
func (g *Gate) idle() time.Duration {
	return g.o.Idle / time.Duration(max(1, len(g.resources)/mostKept))
}

// tidy gives back the leases of unused resources until the gate closes.
func (g *Gate) tidy() {
	every := min(max(g.o.Idle/4, 10*time.Millisecond), 5*time.Second)
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
