package httpfence

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
)

// TestOneClientHasItsShare: the share is of writes, of resources and of bodies.
func TestOneClientHasItsShare(t *testing.T) {
	t.Parallel()
	half := func(i, length, sent int) string {
		return fmt.Sprintf("PUT /r/%d HTTP/1.1\r\nHost: 127.0.0.1\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s", i, Header, newer, length, strings.Repeat("x", sent))
	}
	open := func(t *testing.T, p *Proxy, front string, writes, length, sent int) {
		t.Helper()
		for i := range writes {
			conn, err := net.Dial("tcp", strings.TrimPrefix(front, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if _, err := io.WriteString(conn, half(i, length, sent)); err != nil {
				t.Fatal(err)
			}
		}
		testEventually(t, func() bool {
			p.gate.mu.Lock()
			defer p.gate.mu.Unlock()
			return p.gate.clients.of("127.0.0.1") == usage{int64(writes), int64(writes), int64(writes * sent)}
		})
	}
	refused := func(t *testing.T, what string, r reply) {
		t.Helper()
		r.want(t, what, http.StatusTooManyRequests, "held")
		if r.problem == nil || r.problem.Sent || r.problem.RetryAfter == 0 {
			t.Errorf("%s: %s, want when to try again", what, r)
		}
	}
	t.Run("writes", func(t *testing.T) {
		t.Parallel()
		p, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.MaxWrites = 6 })
		open(t, p, front.URL, 3, 10, 5)
		refused(t, "a fourth write", send(t, "PUT", front.URL+"/r/9", newer, "x"))
		send(t, "GET", front.URL+"/r/9", fence.Stamp{}, "").want(t, "a read", 200, "")
	})
	t.Run("bodies", func(t *testing.T) {
		t.Parallel()
		p, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.MaxBody, o.MaxBodies = 100, 200 })
		open(t, p, front.URL, 2, 100, 40)
		send(t, "PUT", front.URL+"/r/9", newer, strings.Repeat("x", 20)).want(t, "a body for which there is room", 200, "")
		refused(t, "a body too much", send(t, "PUT", front.URL+"/r/9", newer, strings.Repeat("x", 21)))
	})
	t.Run("resources", func(t *testing.T) {
		t.Parallel()
		p, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) {
			o.MaxResources, o.Idle = 6, time.Hour
		})
		clk := at(p.gate)
		for i := range 3 {
			send(t, "PUT", fmt.Sprint(front.URL, "/r/", i), newer, "").want(t, "a resource", 200, "")
		}
		refused(t, "a fourth resource", send(t, "PUT", front.URL+"/r/9", newer, ""))
		send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "one of the three", 200, "")
		testEventually(t, func() bool {
			clk.Advance(time.Hour) // the client may get its answer before the gate notes it
			p.gate.mu.Lock()
			s := p.gate.resources["r/1"]
			p.gate.mu.Unlock()
			if s != nil {
				s.releaseIdle(time.Hour)
			}
			return s == nil
		})
		send(t, "PUT", front.URL+"/r/9", newer, "").want(t, "when one is idle", 200, "")
	})
	t.Run("nothing is left", func(t *testing.T) {
		t.Parallel()
		p, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.Idle = time.Millisecond })
		for _, stamp := range []fence.Stamp{newer, older} {
			send(t, "PUT", front.URL+"/r/1", stamp, strings.Repeat("x", 2*inMemory))
		}
		testEventually(t, func() bool {
			p.gate.mu.Lock()
			defer p.gate.mu.Unlock()
			return len(p.gate.clients.each) == 0 && p.gate.clients.all == usage{}
		})
	})
}

// TestManyClientsMayHaveOneAddress: a balancer's, or a NAT's. With the
// defaults a whole fleet is not refused while the gate is less than half full.
func TestManyClientsMayHaveOneAddress(t *testing.T) {
	g := newWorld().gate(t, "one", nil)
	c := &clients{each: map[string]*usage{}}
	for i := range 30_000 { // 500 new resources a second, for a minute
		if err := c.admit("balancer", true, &g.o); err != nil {
			t.Fatalf("resource %d: %v", i, err)
		}
		c.count("balancer", usage{resources: 1})
	}
	for i := range 2000 {
		if err := c.admit("balancer", false, &g.o); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		c.count("balancer", usage{writes: 1})
	}
}

// TestTheNextClientFindsRoom: whatever the clients before it have taken, there
// is room. The client that has most is refused with 429.
func TestTheNextClientFindsRoom(t *testing.T) {
	o := newWorld().options(t, "one")
	o.MaxWrites = 1000
	if err := o.fill(); err != nil {
		t.Fatal(err)
	}
	c := &clients{each: map[string]*usage{}}
	for i := range 8 {
		name := fmt.Sprint("hog ", i)
		err := c.admit(name, false, &o)
		if err != nil {
			t.Fatalf("the first write of %s: %v", name, err)
		}
		for ; err == nil; err = c.admit(name, false, &o) {
			c.count(name, usage{writes: 1})
		}
		if r := refusalOf(err); r.status != http.StatusTooManyRequests {
			t.Errorf("%s, that has %d of %d: %v, want 429", name, c.of(name).writes, c.all.writes, err)
		}
		if i == 0 && c.all.writes != 500 {
			t.Errorf("one client got %d of 1000, want half", c.all.writes)
		}
	}
}

// TestOneBodyIsReceivedWhileThereIsRoom: its client may then have more than it
// leaves free.
func TestOneBodyIsReceivedWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.MaxBody, o.MaxBodies = 100, 100 })
	send(t, "PUT", front.URL+"/r/1", newer, strings.Repeat("x", 100)).want(t, "the only body", 200, "")
}

// TestManyUnusedResourcesAreKeptForLess: each costs the renewals of a lease.
func TestManyUnusedResourcesAreKeptForLess(t *testing.T) {
	g := newWorld().gate(t, "one", func(o *Options) { o.Idle = time.Minute })
	for n, want := range map[int]time.Duration{0: time.Minute, 2*mostKept - 1: time.Minute, 10 * mostKept: 6 * time.Second} {
		g.resources = map[string]*resourceState{}
		for i := range n {
			g.resources[fmt.Sprint(i)] = nil
		}
		if got := g.idle(); got != want {
			t.Errorf("of %d resources, one is kept for %s; want %s", n, got, want)
		}
	}
	g.resources = nil
}

// TestAClientIsAnAddress: of IPv6 it is a network, because one site has all of
// it.
func TestAClientIsAnAddress(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:80":            "192.0.2.1",
		"[::ffff:192.0.2.1]:80":   "192.0.2.1",
		"[2001:db8::1]:80":        "2001:db8::/48",
		"[2001:db8:0:ffff::1]:80": "2001:db8::/48",
		"[fe80::1%eth0]:80":       "fe80::/48",
		"@":                       "@", // a Unix socket
	} {
		if got := clientOf(&http.Request{RemoteAddr: address}); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}
