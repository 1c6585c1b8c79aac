// Package link is the way of a client to a server: a listener that passes bytes on, and mistreats them when told to. It is for tests that need real connections to break, and break at the moment they say.
package link

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Link is a way of clients to one server. Its methods are safe for concurrent use.
type Link struct {
	listener net.Listener
	target   func() string // "" if there is none

	mu      sync.Mutex
	weather Weather
	changed chan struct{} // closed when the weather changes
	closed  bool
	pairs   map[*pair]bool
}

// Weather is what a link does to the bytes that pass. The zero Weather lets them.
type Weather struct {
	Kind  Kind
	Delay time.Duration // of Slow
}

// Kind is a kind of bad weather.
type Kind string

// The kinds of weather.
const (
	Fair  Kind = ""
	Slow  Kind = "slow"  // everything arrives later by the delay
	Deaf  Kind = "deaf"  // no request arrives: the connection breaks when one comes
	Cut   Kind = "cut"   // requests arrive, and the connection breaks when the reply comes
	Mute  Kind = "mute"  // requests arrive, and replies do not; when it is over, connections break
	Hole  Kind = "hole"  // nothing arrives; when it is over, connections break
	Vault Kind = "vault" // nothing arrives; when it is over, the requests do, late, and connections break when replies come
)

// pair is one connection of a client, and the one to the server that belongs to it.
type pair struct {
	client, server net.Conn
	late           atomic.Bool // a request was kept until it was late: no reply is to come through
}

func (p *pair) close() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// New listens on a port of its own. The target is asked for with every connection: the address of the server now, or "" if there is none.
func New(target func() string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{listener: listener, target: target, changed: make(chan struct{}), pairs: map[*pair]bool{}}
	go l.serve()
	return l, nil
}

// Addr is where clients find it.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Close breaks all connections and takes no more.
func (l *Link) Close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Set(Weather{})
	l.BreakAll()
}

// BreakAll breaks all connections there are.
func (l *Link) BreakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		p.close()
	}
}

// Set changes the weather, for the connections there are and for those to come.
func (l *Link) Set(w Weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather = w
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) now() (Weather, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.weather, l.changed
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

// carry passes bytes on in one direction until the connection breaks. What comes in is taken at once, so that a delay is one for all that comes and not for each piece in turn.
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
		for range parcels { // whoever reads may be waiting to be heard
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

// admit waits for as long as the weather keeps a parcel, and reports whether it may pass.
func (l *Link) admit(p *pair, next parcel, up bool) bool {
	swallowed := Fair
	for {
		w, changed := l.now()
		switch w.Kind {
		case Hole, Vault:
			swallowed = w.Kind
			<-changed
			continue
		case Mute:
			if !up {
				swallowed = w.Kind
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
		case Slow:
			if wait := w.Delay - time.Since(next.at); wait > 0 {
				timer := time.NewTimer(wait)
				select {
				case <-timer.C:
				case <-changed:
					timer.Stop()
					continue
				}
			}
		}
		switch {
		case swallowed == Vault && up:
			p.late.Store(true)
			return true
		case swallowed != Fair:
			return false
		}
		return up || !p.late.Load()
	}
}
