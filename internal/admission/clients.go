package admission

import (
	"fmt"
	"net/http"
	"time"
)

// clients counts what each client of a gate uses now, so that one client cannot
// use up what all of them need. The gate's mutex guards it.
//
// A client may use as much as it leaves free: alone, half of everything; beside
// another that takes all it can, a third. So an address that stands for many
// clients, as of a balancer or a NAT, is refused only when the gate is half
// full. And something is always left for the next client.
type clients struct {
	each map[string]*usage
	all  usage
}

// usage is what one client uses, or all of them.
type usage struct {
	writes    int64 // that have arrived and are not answered
	resources int64 // that the client was the first to use
	bytes     int64 // of bodies that are kept
	requests  int64 // of any kind, where the protocol counts them
}

func (u *usage) add(n usage) {
	u.writes += n.writes
	u.resources += n.resources
	u.bytes += n.bytes
	u.requests += n.requests
}

// of returns what a client uses.
func (c *clients) of(client string) usage {
	if u := c.each[client]; u != nil {
		return *u
	}
	return usage{}
}

// count adds to what a client uses. It forgets a client that uses nothing.
func (c *clients) count(client string, n usage) {
	u := c.each[client]
	if u == nil {
		u = &usage{}
		c.each[client] = u
	}
	u.add(n)
	c.all.add(n)
	if *u == (usage{}) {
		delete(c.each, client)
	}
}

// checkQuota returns a refusal if a client may not have n more of something. It
// uses used of it, and all clients together use all. It may always have least
// while there is room.
func checkQuota(what string, used, all, n, most, least int64, retry time.Duration) error {
	switch {
	case all+n > most:
		return &Refusal{Status: http.StatusServiceUnavailable, Code: "held", Retry: retry, Say: fmt.Sprintf(
			"the gate has %d %s, and %d are as many as it takes at once; nothing was sent, try again later",
			all, what, most)}
	case used+n > max(most-all-n, least):
		return &Refusal{Status: http.StatusTooManyRequests, Code: "held", Retry: retry, Say: fmt.Sprintf(
			"this client has %d of the %d %s that the gate takes at once, and what is left is for others; "+
				"nothing was sent, try again later", used, most, what)}
	}
	return nil
}

// admit returns a refusal if a client may not have one more write or, if fresh,
// one more resource.
func (c *clients) admit(client string, fresh bool, o *Options) error {
	u := c.of(client)
	err := checkQuota("writes", u.writes, c.all.writes, 1, int64(o.MaxWrites), 1, time.Second)
	if err == nil && fresh {
		err = checkQuota("resources", u.resources, c.all.resources, 1, int64(o.MaxResources), 1, o.Idle)
	}
	return err
}

// Keep counts n more bytes of a body that the proxy keeps. It refuses them if
// there is no room: most bounds all bodies, and least is the size that one body
// may always have.
func (a *Arrival) Keep(n, most, least int64) error {
	return a.s.g.keep(a.w.Client, &a.bytes, n, most, least)
}

func (g *Gate) keep(client string, kept *int64, n, most, least int64) error {
	c := &g.clients
	g.mu.Lock()
	defer g.mu.Unlock()
	err := checkQuota("bytes of bodies", c.of(client).bytes, c.all.bytes, n, most, least, time.Second)
	if err != nil {
		return err
	}
	*kept += n
	c.count(client, usage{bytes: n})
	return nil
}

// Attendance is a request of any kind, from before its body is received until
// it has been answered. It counts against its client.
type Attendance struct {
	g      *Gate
	client string
	bytes  int64 // how much is kept of it and its answer; under the gate's mutex
}

// Attend counts a request. It refuses the request if there are too many: most
// bounds those of all clients. Call Leave when it has been answered.
func (g *Gate) Attend(client string, most int64) (*Attendance, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.clients
	err := checkQuota("requests", c.of(client).requests, c.all.requests, 1, most, 1, time.Second)
	if err != nil {
		return nil, err
	}
	c.count(client, usage{requests: 1})
	return &Attendance{g: g, client: client}, nil
}

// Keep counts n more bytes of the request or its answer, as [Arrival.Keep]
// does.
func (a *Attendance) Keep(n, most, least int64) error {
	return a.g.keep(a.client, &a.bytes, n, most, least)
}

// Drop counts n bytes less, which are not kept any more.
func (a *Attendance) Drop(n int64) {
	a.g.mu.Lock()
	defer a.g.mu.Unlock()
	a.bytes -= n
	a.g.clients.count(a.client, usage{bytes: -n})
}

// Leave ends the stay of a request.
func (a *Attendance) Leave() {
	a.g.mu.Lock()
	defer a.g.mu.Unlock()
	a.g.clients.count(a.client, usage{requests: -1, bytes: -a.bytes})
	a.bytes = 0
}
