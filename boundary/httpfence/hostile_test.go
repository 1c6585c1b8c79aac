package httpfence

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// deaf is a service that never reads the body of a request. If the connection
// stays open, it takes the body for the next request. The attack called CL.0 is
// made for such services.
type deaf struct {
	listener net.Listener
	seen     journal
	open     sync.WaitGroup
}

func newDeaf(t *testing.T) *deaf {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{listener: listener}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.open.Go(func() { d.serve(conn) })
		}
	}()
	return d
}

func (d *deaf) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		d.seen.add("%s:%s", r.Method, r.URL.Path)
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil || r.Close {
			return
		}
	}
}

// TestABodyIsNeverTakenForARequest: the service leaves bodies unread. This
// holds for reads, exempt requests and writes.
func TestABodyIsNeverTakenForARequest(t *testing.T) {
	t.Parallel()
	const inside = "DELETE /r/1 HTTP/1.1\r\nHost: inside\r\n\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(inside), inside)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(inside))
	for name, c := range map[string]struct {
		request string
		status  int
		seen    string
	}{
		"GET":     {"GET /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n" + length + "\r\n" + inside, 400, "GET:/after"},
		"chunked": {"GET /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 400, "GET:/after"},
		"OPTIONS": {"OPTIONS /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n" + length + "\r\n" + inside, 400, "GET:/after"},
		"exempt":  {"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\n" + length + "\r\n" + inside, 200, "POST:/search GET:/after"},
		"write":   {"PUT /r/2 HTTP/1.1\r\nHost: 127.0.0.1\r\n" + Header + ": " + newer.String() + "\r\n" + length + "\r\n" + inside, 200, "PUT:/r/2 GET:/after"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := newDeaf(t)
			p, front := newWorld().proxyTo(t, "one", "http://"+service.listener.Addr().String(), func(o *ProxyOptions) {
				o.Exempt = []Rule{rule(t, "POST /search")}
			})
			if r := raw(t, front.URL, c.request); r.status != c.status {
				t.Errorf("answered %s, want %d", r, c.status)
			}
			send(t, "GET", front.URL+"/after", fence.Stamp{}, "").want(t, "the next read", 200, "")
			// When all connections are closed, the service has seen everything.
			closeSoon(p.Close)
			service.open.Wait()
			if got := service.seen.String(); got != c.seen {
				t.Errorf("the service saw %s, want %s", got, c.seen)
			}
		})
	}
}

// raw sends the text of a request unchanged, and returns the answer.
func raw(t *testing.T, front, request string) reply {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(front, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(in, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	refused := RefusalIn(resp)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := reply{status: resp.StatusCode, header: resp.Header, body: string(text)}
	errors.As(refused, &r.problem)
	return r
}

// TestHeadersThatNameAnotherRequestAreRefused: the service might follow them.
func TestHeadersThatNameAnotherRequestAreRefused(t *testing.T) {
	t.Parallel()
	var seen journal
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.add("%s", r.Method) }), nil)
	for _, header := range []string{"X-Original-URL: /r/2", "x_rewrite_url: /r/2", "X-HTTP-Method: DELETE", "X-HTTP-Method-Override: DELETE", "X.HTTP.Method.Override: DELETE", "X-Method-Override: DELETE", "Content_Length: 40", "content.length: 40", "Transfer_Encoding: chunked"} {
		for _, method := range []string{"GET", "PUT"} {
			r := raw(t, front.URL, fmt.Sprintf("%s /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n%s: %s\r\n%s\r\n\r\n", method, Header, newer, header))
			r.want(t, method+" with "+header, 400, "invalid")
		}
		name, _, _ := strings.Cut(header, ":")
		for _, announced := range []string{"", "Trailer: " + name + "\r\n"} {
			trailed := fmt.Sprintf("PUT /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n%s: %s\r\n%sTransfer-Encoding: chunked\r\n\r\n0\r\n%s\r\n\r\n", Header, newer, announced, header)
			raw(t, front.URL, trailed).want(t, "a trailer with "+header, 400, "invalid")
		}
	}
	raw(t, front.URL, fmt.Sprintf("PUT /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n%s: %s\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\n\r\n", Header, newer)).want(t, "a length in the trailer", 400, "invalid")
	if seen.String() != "" {
		t.Errorf("the service saw %s", seen.String())
	}
}

// TestExpectIsNotPassedOn: the proxy answers it itself.
func TestExpectIsNotPassedOn(t *testing.T) {
	t.Parallel()
	var seen journal
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.add("%s:%s", r.Method, r.Header.Get("Expect"))
	}), func(o *ProxyOptions) { o.Exempt = []Rule{rule(t, "POST /search")} })
	for _, request := range []string{"GET /r/1 HTTP/1.1\r\n", "POST /search HTTP/1.1\r\nContent-Length: 1\r\n", "PUT /r/1 HTTP/1.1\r\nContent-Length: 1\r\n" + Header + ": " + newer.String() + "\r\n"} {
		raw(t, front.URL, request+"Host: localhost\r\nExpect: x, 100-continue\r\n\r\na").want(t, request, 200, "")
	}
	if want := "GET: POST: PUT:"; seen.String() != want {
		t.Errorf("the service saw %s, want %s", seen.String(), want)
	}
}

// TestAReadIsNoTunnel: this holds even if the service switches protocols.
func TestAReadIsNoTunnel(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"/bare": "", "/named": "Connection: Upgrade\r\nUpgrade: tunnel\r\n", "/nameless": "Connection: Upgrade\r\nUpgrade:\r\n"}
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+headers[r.URL.Path]+"\r\n")
	}), nil)
	for path := range headers {
		send(t, "GET", front.URL+path, fence.Stamp{}, "").want(t, path, 502, "unknown")
	}
}

// TestARequestForAnotherHostIsRefused: an attacker may point the name of a web
// page at the proxy's address. The page's requests then carry that name.
func TestARequestForAnotherHostIsRefused(t *testing.T) {
	t.Parallel()
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.Hosts = []string{"Orders.example."} })
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:8080": 200, "[::1]": 200, "[::1]:8080": 200, "localhost": 200, "LOCALHOST.:80": 200, "Orders.example:80": 200,
		"evil.example": 421, "evil.example:80": 421, "orders.example.evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421,
	} {
		for _, request := range []string{"GET /r/1", "PUT /r/1"} {
			if r := raw(t, front.URL, fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\n%s: %s\r\n\r\n", request, host, Header, newer)); r.status != want {
				t.Errorf("%s of %s: %s, want %d", request, host, r, want)
			}
		}
	}
	_, open := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.Hosts = []string{"*"} })
	raw(t, open.URL, "GET / HTTP/1.1\r\nHost: any.example\r\n\r\n").want(t, "where all names are allowed", 200, "")
}

// TestAProxyOnTheNetworkIsCalledByAnyName: it cannot know its names behind a
// balancer or in a cluster. A proxy on a loopback address can.
func TestAProxyOnTheNetworkIsCalledByAnyName(t *testing.T) {
	t.Parallel()
	p, _ := newWorld().proxy(t, "one", http.HandlerFunc(echo), nil)
	strict, _ := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.Hosts = []string{"orders.example"} })
	for address, c := range map[string]struct{ usual, named bool }{
		"127.0.0.1:80": {false, false}, "[::1]:80": {false, false}, "10.0.0.7:80": {true, false}, "[2001:db8::1]:80": {true, false},
	} {
		local, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		r := (&http.Request{Host: "orders-proxy:80"}).WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local)))
		if usual, named := p.checkHost(r) == nil, strict.checkHost(r) == nil; usual != c.usual || named != c.named {
			t.Errorf("at %s: passes %v, and %v where names are given; want %v and %v", address, usual, named, c.usual, c.named)
		}
	}
	for _, name := range []string{"", "orders.example:80", "http://orders.example", "a b"} {
		o := ProxyOptions{Options: newWorld().options(t, "one"), Hosts: []string{name}}
		if _, err := NewProxy(&url.URL{Scheme: "http", Host: "h"}, o); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("the name %q: %v, want ErrInvalid", name, err)
		}
	}
}

// TestAMadeUpStampIsNotToldTheOwners: with the grant of the mark anybody could
// write as its owner, unnoticed.
func TestAMadeUpStampIsNotToldTheOwners(t *testing.T) {
	t.Parallel()
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), nil)
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the owner", 200, "")
	madeUp, other := older, older
	madeUp.Token, other.Key = newer.Token, "jobs/b"
	for code, stamp := range map[string]fence.Stamp{"stale": older, "collision": madeUp, "wrong_key": other} {
		r := send(t, "PUT", front.URL+"/r/1", stamp, "")
		r.want(t, "a made-up stamp", 409, code)
		if strings.Contains(r.body, string(newer.Grant)) {
			t.Errorf("%s: the client is told the owner's grant: %s", code, r.body)
		}
	}
}

// TestClientsLearnNothingOfTheInside: answers contain no address, no owner and
// no file of the proxy's side.
func TestClientsLearnNothingOfTheInside(t *testing.T) {
	t.Parallel()
	w := newWorld()
	const file = "/srv/secret-marks/x"
	dead := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	_, front := w.proxyTo(t, "secret-owner@secret-host", "http://"+dead, func(o *ProxyOptions) {
		o.Rules, o.Settle = append(o.Rules, rule(t, "/broken/{id}")), soon
		marks := o.Marks
		o.Marks = func(ctx context.Context, resource string) (guard.Guard, error) {
			if strings.HasPrefix(resource, "broken/") {
				return nil, fmt.Errorf("opening %s: permission denied", file)
			}
			return marks(ctx, resource)
		}
	})
	_, standby := w.proxyTo(t, "two", "http://"+dead, nil)
	told := map[string]reply{
		"a read":              send(t, "GET", front.URL+"/r/1", fence.Stamp{}, ""),
		"a write":             send(t, "PUT", front.URL+"/r/1", newer, ""),
		"a stale write":       send(t, "PUT", front.URL+"/r/1", older, ""),
		"a mark out of reach": send(t, "PUT", front.URL+"/broken/1", newer, ""),
		"the standby":         send(t, "PUT", standby.URL+"/r/1", newer, ""),
	}
	upstream, _ := url.Parse("http://" + dead)
	for what, r := range told {
		if r.problem == nil {
			t.Errorf("%s: %s, want a refusal", what, r)
		}
		for _, secret := range []string{upstream.Port(), "secret", "127.0.0.1", "connection refused", "dial"} {
			if strings.Contains(r.body, secret) {
				t.Errorf("%s: the client is told %q: %s", what, secret, r.body)
			}
		}
	}
}
