package chaos

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is the way of one client to one server: a listener that passes bytes on, and mistreats them when told to.
type link struct {
	listener net.Listener
	target   func() string // "" if there is none

	mu      sync.Mutex
	weather weather
	changed chan struct{} // closed when the weather changes
	closed  bool
	pairs   map[*pair]bool
}

// weather is what a link does to the bytes that pass.
type weather struct {
	kind  kindOfWeather
	delay time.Duration
}

type kindOfWeather string

const (
	fair  kindOfWeather = ""
	slow  kindOfWeather = "slow"  // everything arrives later by the delay
	cut   kindOfWeather = "cut"   // requests arrive, and the connection breaks when the reply comes
	hole  kindOfWeather = "hole"  // nothing arrives; when it is over, connections break
	vault kindOfWeather = "vault" // nothing arrives; when it is over, the requests do, late, and connections break when replies come
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

// newLink listens on a port of its own. The target is asked for with every connection.
func newLink(target func() string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, target: target, changed: make(chan struct{}), pairs: map[*pair]bool{}}
	go l.serve()
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

func (l *link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.set(weather{})
	l.breakAll()
}

// breakAll breaks all connections.
func (l *link) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		p.close()
	}
}

// set changes the weather.
func (l *link) set(w weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather = w
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) now() (weather, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.weather, l.changed
}

func (l *link) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.connect(client)
	}
}

func (l *link) connect(client net.Conn) {
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
func (l *link) carry(p *pair, to io.Writer, from io.Reader, up bool) {
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
func (l *link) admit(p *pair, next parcel, up bool) bool {
	swallowed := fair
	for {
		w, changed := l.now()
		switch w.kind {
		case hole, vault:
			swallowed = w.kind
			<-changed
			continue
		case cut:
			if !up {
				return false
			}
		case slow:
			if wait := w.delay - time.Since(next.at); wait > 0 {
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
		case swallowed == vault && up:
			p.late.Store(true)
			return true
		case swallowed != fair:
			return false
		}
		return up || !p.late.Load()
	}
}
