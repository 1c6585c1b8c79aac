package page

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxWrong is how many wrong tokens one address may try within wrongFor.
	maxWrong = 10
	wrongFor = time.Minute
	// maxGuessers is how many addresses are remembered. Beyond it, the address
	// whose last try is the oldest is forgotten.
	maxGuessers = 4096
)

// guesses bounds how fast one address can try tokens. An address of IPv6 is its
// network of 64 bits, because one machine has them all. The zero guesses is
// ready.
type guesses struct {
	mu    sync.Mutex
	tries map[netip.Prefix][]time.Time // guarded by mu; the oldest first, at most maxWrong
}

// begin counts a try before anybody knows whether its token is right. So tries
// at the same moment are counted, too. right takes the count back. If there
// were too many, begin returns how long the address has to wait.
func (g *guesses) begin(from netip.Prefix) (right func(), wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	tries := g.tries[from]
	for len(tries) > 0 && now.Sub(tries[0]) >= wrongFor {
		tries = tries[1:]
	}
	if len(tries) >= maxWrong {
		return nil, tries[0].Add(wrongFor).Sub(now)
	}
	if g.tries == nil {
		g.tries = map[netip.Prefix][]time.Time{}
	}
	if len(tries) == 0 && len(g.tries) >= maxGuessers {
		g.forget(now)
	}
	g.tries[from] = append(tries[:len(tries):len(tries)], now)
	return func() { g.takeBack(from, now) }, 0
}

// takeBack forgets one try of an address.
func (g *guesses) takeBack(from netip.Prefix, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	tries := g.tries[from]
	for i, t := range tries {
		if t.Equal(at) {
			tries = append(tries[:i:i], tries[i+1:]...)
			break
		}
	}
	if g.tries[from] = tries; len(tries) == 0 {
		delete(g.tries, from)
	}
}

// forget drops the addresses whose tries are over, and at least the one whose
// last try is the oldest. The caller holds the mutex.
func (g *guesses) forget(now time.Time) {
	var oldest netip.Prefix
	var at time.Time
	for from, tries := range g.tries {
		switch last := tries[len(tries)-1]; {
		case now.Sub(last) >= wrongFor:
			delete(g.tries, from)
		case at.IsZero() || last.Before(at):
			oldest, at = from, last
		}
	}
	if len(g.tries) >= maxGuessers {
		delete(g.tries, oldest)
	}
}

// addressOf returns the address that a connection came from, for counting. All
// that are no addresses, such as sockets of this machine, count as one.
func addressOf(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	addr = addr.Unmap().WithZone("")
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	from, _ := addr.Prefix(bits) // it has so many bits
	return from
}
