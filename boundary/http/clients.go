package httpfence

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// clients counts what each client of a gate uses at the moment, so that one
// client cannot use up what all of them need. It belongs to the gate's mutex.
type clients struct {
	each  map[string]*usage
	bytes int64 // of bodies, of all clients
}

// usage is what one client uses.
type usage struct {
	writes    int   // arrived and not answered
	resources int   // slots that the client was the first to use
	bytes     int64 // of bodies that are kept
}

// clientOf names the client of a request: its address, or for IPv6 the network
// of 64 bits, because a host can choose any address in it.
func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}

// of finds the usage of a client, or makes it.
func (c *clients) of(client string) *usage {
	u := c.each[client]
	if u == nil {
		u = &usage{}
		c.each[client] = u
	}
	return u
}

// tidy forgets a client that uses nothing.
func (c *clients) tidy(client string) {
	if u := c.each[client]; u != nil && *u == (usage{}) {
		delete(c.each, client)
	}
}

// admit refuses one more write of a client that has as many as it may, and one
// that needs a new slot if the client has as many of those as it may.
func (c *clients) admit(client string, fresh bool, o *Options) error {
	var u usage
	if known := c.each[client]; known != nil {
		u = *known
	}
	if u.writes >= o.ClientWrites {
		return tooMany(time.Second, "this client has %d writes at the gate that have not been answered, which is as many as one client may have", u.writes)
	}
	if fresh && u.resources >= o.ClientResources {
		return tooMany(o.Idle, "this client has written to %d resources that are still in use, which is as many as one client may have", u.resources)
	}
	return nil
}

// keep counts n more bytes of a body that the proxy keeps. share is how many
// bytes one client may have, most how many all of them may have.
func (a *arrival) keep(n, share, most int64) error {
	g := a.s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.clients.of(a.w.client)
	if u.bytes+n > share {
		return tooMany(time.Second, "the bodies of this client's writes have more than %d bytes together, which is as much as is kept for one client", share)
	}
	if g.clients.bytes+n > most {
		return &refusal{status: http.StatusServiceUnavailable, code: "held", retry: time.Second, say: fmt.Sprintf(
			"the bodies of all writes have more than %d bytes together, which is as much as is kept; nothing was sent, try again", most)}
	}
	a.bytes += n
	u.bytes += n
	g.clients.bytes += n
	return nil
}

// tooMany refuses a client that uses more than its share.
func tooMany(retry time.Duration, format string, args ...any) error {
	return &refusal{status: http.StatusTooManyRequests, code: "held", retry: retry, say: fmt.Sprintf(format, args...) + "; nothing was sent, try again later"}
}
