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
	"github.com/croft-dev/croft/internal/admission/overhttp"
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
			w, r, b := p.gate.core.Used("127.0.0.1")
			return w == int64(writes) && r == int64(writes) && b == int64(writes*sent)
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
			return !p.gate.core.ReleaseIdle("r/1", time.Hour)
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
			w, r, b := p.gate.core.Used("")
			return w == 0 && r == 0 && b == 0
		})
	})
}

// TestOneBodyIsReceivedWhileThereIsRoom: its client may then have more than it
// leaves free.
func TestOneBodyIsReceivedWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.MaxBody, o.MaxBodies = 100, 100 })
	send(t, "PUT", front.URL+"/r/1", newer, strings.Repeat("x", 100)).want(t, "the only body", 200, "")
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
		if got := overhttp.ClientOf(&http.Request{RemoteAddr: address}); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}
