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
}

func (u *usage) add(n usage) {
	u.writes += n.writes
	u.resources += n.resources
	u.bytes += n.bytes
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
	c := &a.s.g.clients
	a.s.g.mu.Lock()
	defer a.s.g.mu.Unlock()
	err := checkQuota("bytes of bodies", c.of(a.w.Client).bytes, c.all.bytes, n, most, least, time.Second)
	if err != nil {
		return err
	}
	a.bytes += n
	c.count(a.w.Client, usage{bytes: n})
	return nil
}
