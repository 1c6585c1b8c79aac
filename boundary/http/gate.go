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
	"github.com/croft-dev/croft/internal/clock"
)

// mostSlots bounds how many resources a gate has open at once.
const mostSlots = 1 << 16

// mostPlaces bounds how many places of marks a gate keeps open between writes, and how many it uses at once: each may have connections of its own, and servers have few.
const mostPlaces = 32

// Gate lets writes to resources in, one at a time and only those whose stamps still count. It is safe for concurrent use. See the package comment for what it
// relies on.
type Gate struct {
	o   Options
	clk clock.Clock

	mu      sync.Mutex
	slots   map[string]*slot
	closed  bool
	tidying bool
	done    chan struct{} // closed by Close
	places  atomic.Int64  // of marks that are open
	marking chan struct{} // those in use

	// settled, if set, knows better than any time whether something is on its way: for tests, which can look into the service.
	settled func(resource string) bool
	// What tests of the tests break.
	flaw struct {
		unserialised bool // the check is made in turn, the write is not
		freeOnLeave  bool // a client that leaves gives up the turn of its write
	}
}

// NewGate makes a gate. The error matches fence.ErrInvalid. Close it.
func NewGate(o Options) (*Gate, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	return &Gate{o: o, clk: clock.System(), slots: map[string]*slot{}, done: make(chan struct{}), marking: make(chan struct{}, mostPlaces)}, nil
}

// write is one write that asks to be let in.
type write struct {
	target
	stamp   fence.Stamp
	stamped bool
	what    string // for people: the method
}

// read finds out what a request is and whose. A zero resource is a read.
func (g *Gate) read(r *http.Request) (write, error) {
	to, err := g.o.classify(r)
	if err != nil || to.resource == "" {
		return write{}, err
	}
	w := write{target: to, what: r.Method}
	if err := fence.CheckKey(g.o.LeasePrefix + to.resource); err != nil {
		return w, fmt.Errorf("the resource has no name for a lease: %w", err)
	}
	switch w.stamp, err = StampOf(r.Header); {
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

// enter waits for the write's turn and decides whether it is let in. The passage it returns must be ended.
func (g *Gate) enter(ctx context.Context, w write) (*passage, error) {
	ctx, cancel := context.WithTimeout(ctx, g.o.Wait)
	defer cancel()
	s, err := g.join(w.resource)
	if err != nil {
		return nil, err
	}
	select {
	case s.turn <- struct{}{}:
	case <-g.done:
		g.part(s)
		return nil, errClosing
	case <-ctx.Done():
		g.part(s)
		return nil, &refusal{status: http.StatusServiceUnavailable, code: "held", retry: time.Second, err: fmt.Errorf(
			"another write to this resource is under way and did not end in time; nothing was sent, try again: %w", context.Cause(ctx))}
	}
	p, err := s.admit(ctx, w)
	if err != nil {
		s.leave()
		return nil, err
	}
	return p, nil
}

// errClosing refuses whoever comes, or still waits, when the gate closes.
var errClosing = &refusal{status: http.StatusServiceUnavailable, code: "held", retry: time.Second, err: errors.New("this proxy is stopping; nothing was sent, try again")}

// join finds the slot of a resource, or makes it. Every join has its part.
func (g *Gate) join(resource string) (*slot, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosing
	}
	s := g.slots[resource]
	if s == nil {
		if len(g.slots) >= mostSlots {
			return nil, &refusal{status: http.StatusServiceUnavailable, code: "held", retry: g.o.Idle, err: fmt.Errorf(
				"%d resources are being written to, which is as many as the gate serves at once; try again, or make the rules name fewer", mostSlots)}
		}
		s = &slot{g: g, resource: resource, turn: make(chan struct{}, 1)}
		g.slots[resource] = s
		if !g.tidying {
			g.tidying = true
			go g.tidy()
		}
	}
	s.users++
	return s, nil
}

func (g *Gate) part(s *slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.users--
}

// tidy gives back what is no longer used, for as long as the gate is open.
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
		slots := make([]*slot, 0, len(g.slots))
		for _, s := range g.slots {
			if s.users == 0 {
				slots = append(slots, s)
			}
		}
		g.mu.Unlock()
		for _, s := range slots {
			s.rest()
		}
	}
}

// Close lets nobody in any more, sends those away that wait, waits until ctx ends for the writes that are inside, and gives the leases back, so that another gate can go on at
// once where nothing is in doubt. Writes that are still inside then leave their leases to lapse, and the error says how many.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	close(g.done)
	slots := make([]*slot, 0, len(g.slots))
	for _, s := range g.slots {
		slots = append(slots, s)
	}
	g.mu.Unlock()
	var wait sync.WaitGroup
	left := make(chan string, len(slots))
	for _, s := range slots {
		wait.Go(func() {
			select {
			case s.turn <- struct{}{}:
				s.end(context.WithoutCancel(ctx)) // the turn is kept: nobody comes after
			case <-ctx.Done():
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
		return fmt.Errorf("closed while writes were under way to %s; what follows there waits for the settle time", strings.Join(inside, ", "))
	}
	return nil
}
