// Package faultnet puts a faulty network between clients and a server. A [Link]
// listens on a port, passes bytes on to the server, and delays, drops or cuts
// them when it is told to. It is for tests that need real connections to break
// at a chosen moment.
//
// A mutex protects the present Fault and the set of connections. Each
// connection has two goroutines per direction: one reads, the other waits for
// as long as the Fault demands and writes. Setting the Fault wakes all that
// wait. Close breaks the connections, and the goroutines end with them.
package faultnet

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Link connects clients with one server. Its methods are safe for concurrent
// use.
type Link struct {
	listener net.Listener
	target   func() string // the server's address; "" if there is none

	mu      sync.Mutex
	fault   Fault
	dice    *rand.Rand    // of a Frail fault
	changed chan struct{} // closed when the fault changes
	closed  bool
	pairs   map[*pair]bool
}

// Fault says how a link treats the bytes that pass. The zero Fault passes them
// on.
type Fault struct {
	Kind  Kind
	Delay time.Duration // for Slow and Frail
	// For Frail: one in so many parcels breaks its connection, as random
	// numbers from the seed say.
	OneIn int
	Seed  uint64
}

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	None Kind = ""
	// Slow: everything arrives later, by the delay.
	Slow Kind = "slow"
	// Frail: as Slow, and now and then a connection breaks instead of
	// delivering a request or a reply.
	Frail Kind = "frail"
	// Deaf: no request arrives. The connection breaks when one is sent.
	Deaf Kind = "deaf"
	// Cut: requests arrive. The connection breaks when the reply is sent.
	Cut Kind = "cut"
	// Mute: requests arrive, replies do not. When Mute ends, connections break.
	Mute Kind = "mute"
	// Hole: nothing arrives. When Hole ends, connections break.
	Hole Kind = "hole"
	// Vault: nothing arrives. When Vault ends, the requests arrive late, and
	// connections break when the replies are sent.
	Vault Kind = "vault"
)

// pair is a client's connection and the server's connection that belongs to it.
type pair struct {
	client, server net.Conn
	// A request was delivered late, so no reply may pass.
	late atomic.Bool
}

func (p *pair) close() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// New makes a link that listens on a port of its own. For every connection it
// calls target for the server's present address, or "" if there is none.
func New(target func() string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{listener: listener, target: target, changed: make(chan struct{}), pairs: map[*pair]bool{}}
	go l.serve()
	return l, nil
}

// Addr returns the address to which clients connect.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Close breaks all connections and accepts no more.
func (l *Link) Close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Set(Fault{})
	l.BreakAll()
}

// BreakAll breaks all present connections.
func (l *Link) BreakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		p.close()
	}
}

// Set changes the fault, for present and future connections.
func (l *Link) Set(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault, l.dice = f, rand.New(rand.NewPCG(f.Seed, 0))
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) now() (Fault, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault, l.changed
}

func (l *Link) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.connect(client)
	}
}

func (l *Link) connect(client net.Conn) {
	target := l.target()
	if target == "" {
		_ = client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	p := &pair{client: client, server: server}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		p.close()
		return
	}
	l.pairs[p] = true
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.carry(p, server, client, true) })
	both.Go(func() { l.carry(p, client, server, false) })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pairs, p)
}

// parcel is some bytes, and when they came.
type parcel struct {
	bytes []byte
	at    time.Time
}

// carry passes bytes on in one direction until the connection breaks. A
// goroutine reads them at once, so that a delay applies to all bytes together
// and not to each piece in turn.
func (l *Link) carry(p *pair, to io.Writer, from io.Reader, up bool) {
	parcels := make(chan parcel, 1024)
	go func() {
		defer close(parcels)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				parcels <- parcel{buffer[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		p.close()
		for range parcels { // so that the reading goroutine can end
		}
	}()
	for next := range parcels {
		if !l.admit(p, next, up) {
			return
		}
		if _, err := to.Write(next.bytes); err != nil {
			return
		}
	}
}

// admit waits for as long as the fault holds a parcel back, and reports
// whether the parcel may pass.
func (l *Link) admit(p *pair, next parcel, up bool) bool {
	swallowed := None
	for {
		f, changed := l.now()
		switch f.Kind {
		case Hole, Vault:
			swallowed = f.Kind
			<-changed
			continue
		case Mute:
			if !up {
				swallowed = f.Kind
				<-changed
				continue
			}
		case Deaf:
			if up {
				return false
			}
		case Cut:
			if !up {
				return false
			}
		case Slow, Frail:
			if wait := f.Delay - time.Since(next.at); wait > 0 {
				timer := time.NewTimer(wait)
				select {
				case <-timer.C:
				case <-changed:
					timer.Stop()
					continue
				}
			}
		}
		if f.Kind == Frail && l.breaks(f) {
			return false
		}
		switch {
		case swallowed == Vault && up:
			p.late.Store(true)
			return true
		case swallowed != None:
			return false
		}
		return up || !p.late.Load()
	}
}

// breaks throws the dice of a Frail fault.
func (l *Link) breaks(f Fault) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dice.IntN(f.OneIn) == 0
}
