package httpfence

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/internal/admission/overhttp"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestTheProxyGuardsAServiceThatCannotCheck: valid writes reach the service
// unchanged. Others do not reach it. Reads pass.
func TestTheProxyGuardsAServiceThatCannotCheck(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var seen journal
	_, front := w.proxy(t, "one", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen.add("%s:%s:%s", r.Method, r.URL, body)
		w.Header().Set("X-Answer", r.Header.Get("X-Question"))
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, "got %s under %s for %s", body, r.Header.Get(Header), r.Header.Get("X-Forwarded-Host"))
	}), nil)
	r := send(t, "PUT", front.URL+"/r/1?a=b;c=%zz", newer, "hello")
	r.want(t, "a write", 202, "")
	if want := "got hello under " + newer.String() + " for " + strings.TrimPrefix(front.URL, "http://"); r.body != want {
		t.Errorf("answered %q, want %q", r.body, want)
	}
	send(t, "PUT", front.URL+"/r/1", older, "late").want(t, "a stale write", 409, "stale")
	send(t, "DELETE", front.URL+"/r/1", newer, "").want(t, "a write without a body", 202, "")
	send(t, "POST", front.URL+"/r/1", fence.Stamp{}, "x").want(t, "a write without a stamp", 428, "invalid")
	send(t, "GET", front.URL+"/anything", fence.Stamp{}, "").want(t, "a read", 202, "")
	if want := "PUT:/r/1?a=b;c=%zz:hello DELETE:/r/1: GET:/anything:"; seen.String() != want {
		t.Errorf("the service saw %s, want %s", seen.String(), want)
	}
}

// TestTheServiceMaySpeakTLS: the TLS settings of the transport hold for reads
// and writes.
func TestTheServiceMaySpeakTLS(t *testing.T) {
	t.Parallel()
	w := newWorld()
	service := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	service.Config.ErrorLog = log.New(io.Discard, "", 0)
	service.StartTLS()
	defer service.Close()
	_, front := w.proxyTo(t, "one", service.URL, func(o *ProxyOptions) {
		o.Transport, o.AnswerWithin = service.Client().Transport, testenv.Patience
	})
	if r := send(t, "PUT", front.URL+"/r/1", newer, "hello"); r.body != "PUT /r/1 hello" {
		t.Errorf("a write: %s", r)
	}
	if r := send(t, "GET", front.URL+"/r/1", fence.Stamp{}, ""); r.body != "GET /r/1 " {
		t.Errorf("a read: %s", r)
	}
	var why journal
	_, strange := w.proxyTo(t, "two", service.URL, func(o *ProxyOptions) {
		o.AnswerWithin = testenv.Patience
		o.Observe = func(e gate.Event) {
			if e.Kind == gate.Refused {
				why.add("%v", e.Err)
			}
		}
	})
	r := send(t, "PUT", strange.URL+"/r/2", newer, "hello")
	r.want(t, "a service that is not known", 502, "unknown")
	if r.problem == nil || r.problem.Sent || !strings.Contains(why.String(), "certificate") {
		t.Errorf("%s, want it to say that nothing was sent; the operator is told %s, want why", r, why.String())
	}
}

// TestUpgradesAreRefused: they are refused for reads, too: the proxy cannot
// check what flows through them.
func TestUpgradesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var seen journal
	_, front := w.proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.add("%s", r.Method) }), nil)
	for _, header := range []string{"Connection: Upgrade\r\nUpgrade: websocket", "Connection: keep-alive, upgrade", "Upgrade: h2c"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /r/1 HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", header)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := RefusalIn(resp); resp.StatusCode != http.StatusNotImplemented || !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "cannot be checked") {
			t.Errorf("%s: %d %v", header, resp.StatusCode, err)
		}
		conn.Close()
	}
	if seen.String() != "" {
		t.Errorf("the service saw %s", seen.String())
	}
}

// TestBodiesAreBoundedAndWhole: bodies of any size arrive complete or not at
// all.
func TestBodiesAreBoundedAndWhole(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			var got atomic.Int64
			var calls atomic.Int32
			_, front := w.proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				n, _ := io.Copy(io.Discard, r.Body)
				got.Store(n)
			}), func(o *ProxyOptions) { o.MaxBody, o.StreamBodies = 3<<20, stream })
			for i, size := range []int64{0, 1, inMemory - 1, inMemory, inMemory + 1, 3 << 20} {
				send(t, "PUT", front.URL+"/r/1", newer, strings.Repeat("x", int(size))).want(t, fmt.Sprint(size), 200, "")
				if got.Load() != size || calls.Load() != int32(i+1) {
					t.Errorf("%d bytes arrived as %d in %d calls", size, got.Load(), calls.Load())
				}
			}
			r := send(t, "PUT", front.URL+"/r/1", newer, strings.Repeat("x", 3<<20+1))
			r.want(t, "a byte too much", http.StatusRequestEntityTooLarge, "invalid")
			if calls.Load() != 6 {
				t.Errorf("the service saw a body that was too long")
			}
			// Without a length, the limit is noticed only when it is reached.
			req, _ := http.NewRequest(http.MethodPut, front.URL+"/r/2", io.MultiReader(bytes.NewReader(make([]byte, 2<<20)), bytes.NewReader(make([]byte, 2<<20))))
			SetStamp(req.Header, newer)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return // the connection was cut while it was sent, which is an answer as well
			}
			resp.Body.Close()
			if resp.StatusCode < 400 {
				t.Errorf("an endless body: %d", resp.StatusCode)
			}
		})
	}
}

// TestAClientThatBreaksOffSendsNothing: a body is received before anything of
// it is sent on.
func TestAClientThatBreaksOffSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var calls atomic.Int32
	_, front := w.proxy(t, "one", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }), func(o *ProxyOptions) {
		o.ReceiveWithin, o.Wait, o.Settle = soon, soon, time.Minute
	})
	for _, stay := range []bool{false, true} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\n%s: %s\r\nContent-Length: 10\r\n\r\nhalf", Header, newer)
		if stay { // the client stays and sends nothing more
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("a body that does not come: %s", resp.Status)
			}
		}
		conn.Close()
	}
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the next", 200, "")
	if calls.Load() != 1 {
		t.Errorf("the service saw %d writes, want the whole one alone", calls.Load())
	}
}

// TestAnswersStream: the client has the first part before the last is made. The
// turn ends with the last.
func TestAnswersStream(t *testing.T) {
	t.Parallel()
	w := newWorld()
	goOn := make(chan struct{})
	_, front := w.proxy(t, "one", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			fmt.Fprint(w, "first ")
			_ = http.NewResponseController(w).Flush()
			<-goOn
			fmt.Fprint(w, "last")
		}
	}), func(o *ProxyOptions) { o.Wait = soon })
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/r/1", nil)
	SetStamp(req.Header, newer)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	part := make([]byte, 6)
	if _, err := io.ReadFull(resp.Body, part); err != nil || string(part) != "first " {
		t.Fatalf("%q, %v", part, err)
	}
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "before the answer is complete", 503, "held")
	close(goOn)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "last" {
		t.Fatalf("%q, %v", rest, err)
	}
	testEventually(t, func() bool { return send(t, "PUT", front.URL+"/r/1", newer, "").status == 200 })
}

func testEventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(testenv.Patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never was")
		}
	}
}

// TestTheTurnLastsUntilTheServiceHasAnswered: the turn does not end when the
// client leaves.
func TestTheTurnLastsUntilTheServiceHasAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var seen journal
	entered, goOn := make(chan struct{}), make(chan struct{})
	_, front := w.proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			close(entered)
			<-goOn
		}
		seen.add("%s", r.Method)
	}), nil)
	ctx, leave := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		_, err := sendErr(ctx, "POST", front.URL+"/r/1", older, "")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the client that left: %v", err)
		}
	})
	<-entered
	leave()
	wait.Wait()
	wait.Go(func() { send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "") })
	time.Sleep(50 * time.Millisecond) // gives the newer write time to come in too early
	close(goOn)
	wait.Wait()
	if want := "POST PUT"; seen.String() != want {
		t.Errorf("the service saw %s, want %s", seen.String(), want)
	}
}

// cutter is a service that breaks connections, before or after a POST has taken
// effect.
func cutter(seen *journal) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.add("%s", r.Method)
		switch r.Method {
		case http.MethodPost:
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
		case http.MethodPatch: // half an answer
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "GATEWAY": // the answer of a gateway, not of the service
			w.WriteHeader(http.StatusGatewayTimeout)
		case "EDGE": // the answer of a content delivery network
			w.WriteHeader(524)
		}
	})
}

// TestAForwardWithoutAnAnswerClosesTheResource: the resource is closed for the
// settle time. Others stay open.
func TestAForwardWithoutAnAnswerClosesTheResource(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "PATCH", "PUT", "GATEWAY", "EDGE"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			var seen journal
			stalled := make(chan struct{})
			handler := cutter(&seen)
			if method == "PUT" { // too slow instead of cut
				var first atomic.Bool
				handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					seen.add("%s", r.Method)
					if r.Method == "PUT" && !first.Swap(true) {
						<-stalled
					}
				})
			}
			p, front := w.proxy(t, "one", handler, func(o *ProxyOptions) {
				o.Wait, o.Settle = soon, time.Minute
				if method == "PUT" {
					o.AnswerWithin = 2 * time.Second
				}
			})
			defer close(stalled)
			clk := at(p.gate)
			r, err := sendErr(t.Context(), method, front.URL+"/r/1", newer, "x")
			switch {
			case method == "PATCH":
				if err == nil {
					t.Errorf("half an answer was passed on as a whole one: %s", r)
				}
			case err != nil:
				t.Fatal(err)
			case method == "GATEWAY":
				r.want(t, "what a gateway says is passed on", 504, "")
			case method == "EDGE":
				r.want(t, "what a gateway says is passed on", 524, "")
			default:
				r.want(t, "the forward", map[string]int{"POST": 502, "PUT": 504}[method], "unknown")
				if r.problem == nil || !r.problem.Sent {
					t.Errorf("%s, want it to say that it was sent", r)
				}
			}
			p.o.AnswerWithin = 30 * time.Second // enough for the rest, on any machine
			testEventually(t, func() bool {     // the client may get its answer before the gate notes it
				r = send(t, "DELETE", front.URL+"/r/1", newer, "")
				return r.problem == nil || r.problem.Code != "held"
			})
			r.want(t, "the next write", 503, "unknown")
			if r.problem == nil || r.problem.RetryAfter != time.Minute || r.problem.Sent {
				t.Errorf("%s, want when to try again", r)
			}
			send(t, "GET", front.URL+"/r/1", fence.Stamp{}, "").want(t, "a read", 200, "")
			send(t, "DELETE", front.URL+"/r/2", newer, "").want(t, "another resource", 200, "")
			clk.Advance(time.Minute)
			send(t, "DELETE", front.URL+"/r/1", newer, "").want(t, "settled", 200, "")
			if want := method + " GET DELETE DELETE"; seen.String() != want {
				t.Errorf("the service saw %s, want %s", seen.String(), want)
			}
		})
	}
}

// TestAnUnsentWriteMayComeAgain: a service that is down has seen nothing. So
// the resource stays open, and the number is free.
func TestAnUnsentWriteMayComeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var seen journal
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.add("%s", r.Method) })
	addr := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)) // where nobody listens
	_, front := w.proxyTo(t, "one", "http://"+addr, nil)
	for range 2 {
		r := send(t, "PUT", front.URL+"/r/1", numbered(newer, 1), "x")
		r.want(t, "while it is down", 502, "unknown")
		if r.problem == nil || r.problem.Sent || !strings.Contains(r.problem.Detail, "nothing was sent") {
			t.Errorf("%s, want it to say that nothing was sent", r)
		}
	}
	read := send(t, "GET", front.URL+"/r/1", fence.Stamp{}, "")
	read.want(t, "a read", 502, "unknown")
	if read.problem == nil || read.problem.Sent || !strings.Contains(read.problem.Detail, "nothing was sent") {
		t.Errorf("%s, want it to say that nothing of the read was sent", read)
	}
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewUnstartedServer(handler)
	service.Listener = again
	service.Start()
	defer service.Close()
	send(t, "PUT", front.URL+"/r/1", numbered(newer, 1), "x").want(t, "when it is back", 200, "")
	send(t, "PUT", front.URL+"/r/1", numbered(newer, 1), "x").want(t, "a copy", 409, "repeated")
	if seen.String() != "PUT" {
		t.Errorf("the service saw %s, want one write", seen.String())
	}
}

// TestAReadThatWasCutOffMayHaveBeenSeen: the service had the read, and broke
// the connection.
func TestAReadThatWasCutOffMayHaveBeenSeen(t *testing.T) {
	t.Parallel()
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}), nil)
	r := send(t, "GET", front.URL+"/r/1", fence.Stamp{}, "")
	r.want(t, "a read", 502, "unknown")
	if r.problem == nil || !r.problem.Sent {
		t.Errorf("%s, want it to say that it was sent", r)
	}
}

// TestAWriteIsSentOnce: this holds for a write that says it could be repeated,
// on a connection that breaks.
func TestAWriteIsSentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var seen journal
	p, front := w.proxy(t, "one", cutter(&seen), nil)
	p.gate.core.Options.Settle = 20 * time.Millisecond
	for range 3 {
		send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "a good one", 200, "") // leaves an open connection
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/r/1", nil)
		SetStamp(req.Header, newer)
		req.Header.Set("Idempotency-Key", "k")
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if want := "PUT POST PUT POST PUT POST"; seen.String() != want {
		t.Errorf("the service saw %s, want %s", seen.String(), want)
	}
}

// TestAProxyThatLosesItsLeaseCutsWhatIsInFlight: the next gate waits until the
// cut write has settled.
func TestAProxyThatLosesItsLeaseCutsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld()
	entered, cut := make(chan struct{}), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			close(entered)
			<-r.Context().Done() // the connection is gone
			close(cut)
		}
	}))
	defer service.Close()
	p, one := w.proxyTo(t, "one", service.URL, nil)
	next, two := w.proxyTo(t, "two", service.URL, func(o *ProxyOptions) { o.Wait = soon })
	clk := at(next.gate)
	go func() {
		<-entered
		w.lose(t, p.gate)
	}()
	r := send(t, "POST", one.URL+"/r/1", older, "")
	r.want(t, "what was in flight", 502, "unknown")
	if r.problem == nil || !r.problem.Sent {
		t.Errorf("%s, want it to say that it was sent", r)
	}
	<-cut
	send(t, "PUT", two.URL+"/r/1", newer, "").want(t, "at the other proxy, at once", 503, "unknown")
	clk.Advance(next.gate.core.Options.Settle + next.gate.core.Options.TTL)
	testEventually(t, func() bool { return send(t, "PUT", two.URL+"/r/1", newer, "").status == 200 })
	send(t, "PUT", two.URL+"/r/1", older, "").want(t, "the older owner there", 409, "stale")
}

// TestASlowServiceKeepsItsClient: the pieces of an answer may come with long
// pauses, but the client must take each at once.
func TestASlowServiceKeepsItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld()
	p, front := w.proxy(t, "one", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "first ")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(soon + time.Second)
		fmt.Fprint(w, "last")
	}), nil)
	p.stall = soon
	if r := send(t, "POST", front.URL+"/r/1", newer, ""); r.body != "first last" {
		t.Errorf("the client got %s", r)
	}
}

// TestNothingLeavesAfterTheLease: the connection itself checks the clock before
// it sends.
func TestNothingLeavesAfterTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld()
	lease, err := newClient(t, w.store, "one").Acquire(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	defer there.Close()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	conn := &overhttp.Conn{Conn: here, Exchange: &overhttp.Exchange{Context: t.Context(), Passage: &admission.Passage{Lease: lease}}}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Errorf("under the lease: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, croft.ErrLost) {
		t.Errorf("after it: %v, want ErrLost", err)
	}
}

// TestAProxyIsAskedForWhatItNeeds: missing options are refused before anything
// is served.
func TestAProxyIsAskedForWhatItNeeds(t *testing.T) {
	w := newWorld()
	good := ProxyOptions{Options: w.options(t, "one")}
	for _, text := range []string{"", "localhost:80", "ftp://h/", "http://", "http://u:p@h/", "http://h/?q", "http://h/#f"} {
		u, err := url.Parse(text)
		if err != nil {
			u = nil
		}
		if _, err := NewProxy(u, good); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("upstream %q: %v, want ErrInvalid", text, err)
		}
	}
	short := good
	short.AnswerWithin = short.Settle + 1
	if _, err := NewProxy(&url.URL{Scheme: "http", Host: "h"}, short); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a settle time shorter than an answer: %v, want ErrInvalid", err)
	}
	cramped := good
	cramped.MaxBody, cramped.MaxBodies = 2, 1
	if _, err := NewProxy(&url.URL{Scheme: "http", Host: "h"}, cramped); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("no room for one body: %v, want ErrInvalid", err)
	}
	alone := good
	alone.Client = nil
	if _, err := NewProxy(&url.URL{Scheme: "http", Host: "h"}, alone); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("without leases: %v, want ErrInvalid", err)
	}
}
