package admission

import (
	"time"

	"github.com/croft-dev/croft"
)

// This file lets the tests of the gates around a protocol look inside.

// Inspection is what there is of a resource at a gate.
type Inspection struct {
	Writes  int // that have arrived and not departed
	Waiting int // of them, those that wait for their turn
	Lease   *croft.Lease
}

// Inspect returns what there is of a resource, and whether there is anything.
// The write that has the turn may change the lease, so no other may be about to
// come in.
func (g *Gate) Inspect(resource string) (Inspection, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.resources[resource]
	if s == nil {
		return Inspection{}, false
	}
	s.turn.mu.Lock()
	defer s.turn.mu.Unlock()
	return Inspection{Writes: s.users, Waiting: len(s.turn.waiting), Lease: s.lease}, true
}

// Resources returns how many resources are in use.
func (g *Gate) Resources() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.resources)
}

// Used returns what a client uses, or with the name "" all of them.
func (g *Gate) Used(client string) (writes, resources, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.clients.all
	if client != "" {
		u = g.clients.of(client)
	}
	return u.writes, u.resources, u.bytes
}

// ReleaseIdle gives the lease of a resource back that was unused for as long as
// idle. It reports whether there was such a resource.
func (g *Gate) ReleaseIdle(resource string, idle time.Duration) bool {
	g.mu.Lock()
	s := g.resources[resource]
	g.mu.Unlock()
	if s != nil {
		s.releaseIdle(idle)
	}
	return s != nil
}

// CloseMarks closes the guard of an unused resource's mark. The next look opens
// it again.
func (g *Gate) CloseMarks(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resources[resource].closeMarks()
}
