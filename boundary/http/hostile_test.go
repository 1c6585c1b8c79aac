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
	"github.com/croft-dev/croft/internal/testenv"
)

// deaf is a service that never reads the body of a request. On a connection
// that stays open it takes the body for the next request, as the services do
// that an attack called CL.0 is made for.
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

// TestABodyIsNeverTakenForARequest: of a read, of an exempt request, and of a
// write. The service is one that leaves bodies unread.
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
			// When all connections are closed the service has seen all that it will see.
			closeSoon(p.Close)
			service.open.Wait()
			if got := service.seen.String(); got != c.seen {
				t.Errorf("the service saw %s, want %s", got, c.seen)
			}
		})
	}
}

// raw sends a request as it is written and returns the answer.
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
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
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

// atGate waits until n writes to r/1 have arrived at a gate and wait or are
// inside.
func atGate(t *testing.T, g *Gate, n int) {
	t.Helper()
	testEventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		s := g.slots["r/1"]
		return s != nil && s.users == n
	})
}

// TestAReplacedOwnerCannotKeepTheNextOneWaiting: however many of its writes
// wait, the newer one is the next. The service sees none of the others.
func TestAReplacedOwnerCannotKeepTheNextOneWaiting(t *testing.T) {
	t.Parallel()
	const many = 20
	var seen journal
	entered, goOn := make(chan struct{}), make(chan struct{})
	p, front := newWorld().proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.add("%s", r.Method)
		if r.Method == "POST" {
			close(entered)
			<-goOn
		}
	}), nil)
	var all sync.WaitGroup
	all.Go(func() { send(t, "POST", front.URL+"/r/1", older, "").want(t, "the first", 200, "") })
	<-entered
	for range many {
		all.Go(func() { send(t, "PATCH", front.URL+"/r/1", older, "").want(t, "one of many", 409, "stale") })
	}
	atGate(t, p.gate, 1+many)
	all.Go(func() { send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "") })
	atGate(t, p.gate, 1+many+1)
	close(goOn)
	all.Wait()
	if want := "POST PUT"; seen.String() != want {
		t.Errorf("the service saw %s, want %s", seen.String(), want)
	}
}

// TestAReplacedOwnerThatWaitsForAClosedResourceGivesWay: to a newer one that
// came later.
func TestAReplacedOwnerThatWaitsForAClosedResourceGivesWay(t *testing.T) {
	t.Parallel()
	w := newWorld()
	crash(t, w, "zero")
	var seen journal
	p, front := w.proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.add("%s", r.Method) }), func(o *ProxyOptions) {
		o.Settle = time.Minute
	})
	clk := at(p.gate)
	var all sync.WaitGroup
	all.Go(func() { send(t, "PATCH", front.URL+"/r/1", older, "").want(t, "the older", 409, "stale") })
	testEventually(t, func() bool {
		rec, err := w.store.Get(t.Context(), DefaultLeasePrefix+"r/1")
		return err == nil && strings.HasPrefix(rec.Progress, closedMark)
	})
	all.Go(func() { send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "") })
	atGate(t, p.gate, 2)
	testEventually(t, waitsAt(p.gate)) // it has arrived; now it is in the queue
	clk.Advance(time.Minute)
	all.Wait()
	if want := "PUT"; seen.String() != want {
		t.Errorf("the service saw %s, want %s", seen.String(), want)
	}
}

// waitsAt reports whether a write waits for its turn at r/1.
func waitsAt(g *Gate) func() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.slots["r/1"]
	return func() bool {
		s.turn.mu.Lock()
		defer s.turn.mu.Unlock()
		return len(s.turn.waiting) == 1
	}
}

// TestTheBodyOfAStaleWriteIsNotReceived: neither while the newer owner's write
// is inside nor when nobody is.
func TestTheBodyOfAStaleWriteIsNotReceived(t *testing.T) {
	t.Parallel()
	w := newWorld()
	entered, goOn := make(chan struct{}), make(chan struct{})
	_, front := w.proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			close(entered)
			<-goOn
		}
	}), func(o *ProxyOptions) { o.ReceiveWithin = soon })
	stale := "PUT /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n" + Header + ": " + older.String() + "\r\nContent-Length: 1000000\r\n\r\n"
	var wait sync.WaitGroup
	wait.Go(func() { send(t, "POST", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "") })
	<-entered
	raw(t, front.URL, stale).want(t, "before the body, while the newer is inside", 409, "stale")
	close(goOn)
	wait.Wait()
	raw(t, front.URL, stale).want(t, "before the body, when nobody is inside", 409, "stale")
	// The mark that the gate remembers is not the last word.
	place, err := w.marks.open(t.Context(), "r/1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Rekey(t.Context(), "jobs/b", "op", "moved"); err != nil {
		t.Fatal(err)
	}
	moved := fence.Stamp{Key: "jobs/b", Token: 50, Grant: newer.Grant}
	send(t, "PUT", front.URL+"/r/1", moved, "").want(t, "a key that was allowed meanwhile", 200, "")
}

// TestHeadersThatNameAnotherRequestAreRefused: the service might follow them.
func TestHeadersThatNameAnotherRequestAreRefused(t *testing.T) {
	t.Parallel()
	var seen journal
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.add("%s", r.Method) }), nil)
	for _, header := range []string{"X-Original-URL: /r/2", "x_rewrite_url: /r/2", "X-HTTP-Method: DELETE", "X-HTTP-Method-Override: DELETE", "X.HTTP.Method.Override: DELETE", "X-Method-Override: DELETE"} {
		for _, method := range []string{"GET", "PUT"} {
			r := raw(t, front.URL, fmt.Sprintf("%s /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n%s: %s\r\n%s\r\n\r\n", method, Header, newer, header))
			r.want(t, method+" with "+header, 400, "invalid")
		}
	}
	if seen.String() != "" {
		t.Errorf("the service saw %s", seen.String())
	}
}

// TestARequestForAnotherHostIsRefused: a web page whose name was moved to the
// proxy's address sends its own name.
func TestARequestForAnotherHostIsRefused(t *testing.T) {
	t.Parallel()
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.Hosts = []string{"orders.example"} })
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

// TestClientsLearnNothingOfTheInside: of no address, no owner and no file.
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
