package httpfence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/internal/admission/overhttp"
)

// ProxyOptions shape a [Proxy]. Rules, Marks and Client are required.
type ProxyOptions struct {
	Options
	// AnswerWithin is how long the service may take to answer a write, from the
	// connection to the end of the answer. After that the write is in doubt. At
	// most Settle. Default: 30 seconds, or Settle if that is less.
	AnswerWithin time.Duration
	// ConnectWithin is how long it may take to connect to the service, TLS
	// included. Default: 5 seconds.
	ConnectWithin time.Duration
	// ReceiveWithin is how long a client may take to send the body of a write.
	// Default: 1 minute.
	ReceiveWithin time.Duration
	// MaxBody bounds the body of a write, in bytes. Default: 64 MiB.
	MaxBody int64
	// MaxBodies bounds the total size of all bodies of writes that are kept, in
	// bytes, shared like MaxWrites. One body of MaxBody is always allowed while
	// there is room. Default: 1 GiB, or 4 times MaxBody if that is more.
	MaxBodies int64
	// Hosts lists the names by which clients call the proxy, without ports.
	// Requests for another host are refused with 421, so that no web page can
	// reach the proxy through a name of its own. IP addresses and localhost are
	// always allowed; "*" allows all names. Default: no names for connections
	// to a loopback address, all names for others.
	Hosts []string
	// StreamBodies sends the body of a write on as it arrives, instead of
	// receiving all of it first. Then a slow client keeps others from the
	// resource, and a client that breaks off closes it for the settle time.
	// Default: bodies are received first, in memory up to 64 KiB, in a
	// temporary file beyond.
	StreamBodies bool
	// Transport sends reads. Default: a copy of http.DefaultTransport. If it is
	// an *http.Transport, its TLS settings and its Proxy are used for writes,
	// too.
	Transport http.RoundTripper
}

// Proxy is a reverse proxy for a service that cannot check stamps. Its [Gate]
// lets writes in, and reads pass. It is an http.Handler, safe for concurrent
// use.
//
// Every write has a connection of its own and is sent at most once. The answer
// is passed on as it arrives. The proxy refuses requests that would upgrade the
// connection, such as WebSockets: it cannot check what flows through them.
type Proxy struct {
	gate   *Gate
	o      ProxyOptions
	writes *httputil.ReverseProxy
	reads  *httputil.ReverseProxy
	hosts  overhttp.Hosts
	stall  time.Duration
	// freeOnLeave breaks the proxy on purpose, for tests of the tests: a client
	// that leaves gives up the turn of its write.
	freeOnLeave bool
}

// NewProxy makes a proxy in front of a service. Its error matches
// fence.ErrInvalid. Close the proxy when it is no longer used.
func NewProxy(upstream *url.URL, o ProxyOptions) (*Proxy, error) {
	gate, err := NewGate(o.Options)
	if err != nil {
		return nil, err
	}
	return newProxy(upstream, o, gate)
}

func newProxy(upstream *url.URL, o ProxyOptions, gate *Gate) (*Proxy, error) {
	if err := overhttp.CheckUpstream(upstream); err != nil {
		return nil, err
	}
	if o.Client == nil {
		return nil, fmt.Errorf("%w proxy: it has no client for its own leases; "+
			"without them two proxies could stand in front of one resource", fence.ErrInvalid)
	}
	settle := gate.core.Options.Settle
	if err := overhttp.FillTimes(settle, &o.AnswerWithin, &o.ConnectWithin, &o.ReceiveWithin); err != nil {
		return nil, err
	}
	if o.MaxBody == 0 {
		o.MaxBody = 64 << 20
	}
	if o.MaxBodies == 0 {
		o.MaxBodies = max(1<<30, 4*o.MaxBody)
	}
	if o.MaxBody < 0 || o.MaxBodies < o.MaxBody {
		return nil, fmt.Errorf("%w MaxBodies %d: it must be at least as much as one body may have (%d)",
			fence.ErrInvalid, o.MaxBodies, o.MaxBody)
	}
	o.Transport = overhttp.Reads(o.Transport)
	hosts, err := overhttp.NewHosts(o.Hosts)
	if err != nil {
		return nil, err
	}
	p := &Proxy{gate: gate, o: o, hosts: hosts, stall: overhttp.Stall}
	rewrite := func(pr *httputil.ProxyRequest) {
		pr.SetURL(upstream)
		pr.Out.URL.RawQuery = pr.In.URL.RawQuery // unchanged: no rule looks at it
		pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
		pr.SetXForwarded()
		// The proxy has answered it. A service that answers it again, or waits
		// for a body whose end it does not know, mixes requests up.
		pr.Out.Header.Del("Expect")
		// Some services leave a request's body unread and take it for the next
		// request. So no connection is used again after a body.
		pr.Out.Close = pr.In.ContentLength != 0
	}
	silent := log.New(io.Discard, "", 0) // the gate's events say the same
	p.reads = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: &reader{o.Transport}, FlushInterval: -1, ErrorHandler: p.readFailed,
		ErrorLog: silent,
	}
	p.writes = &httputil.ReverseProxy{
		Rewrite: rewrite, FlushInterval: -1, ErrorLog: silent,
		Transport:    &forwarder{overhttp.NewTransport(o.Transport, o.ConnectWithin, settle)},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { Refuse(w, err) },
	}
	return p, nil
}

// readFailed answers a read to which the service gave no answer.
func (p *Proxy) readFailed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	p.gate.core.Emit(gate.Event{
		Kind: gate.ReadFailed, Method: r.Method, Status: http.StatusBadGateway, Code: "unknown", Err: err,
	})
	known := &admission.Refusal{
		Status: http.StatusBadGateway, Code: "unknown", Sent: true, Err: err,
		Say: "the service behind the proxy did not answer; try again",
	}
	if errors.Is(err, errNotConnected) {
		known.Sent, known.Retry = false, time.Second
		known.Say = "the service behind the proxy cannot be reached; nothing was sent, try again"
	}
	Refuse(w, known)
}

// errNotConnected says that a read never had a connection to the service.
var errNotConnected = errors.New("not connected")

// reader sends reads to the service. Its errors match errNotConnected if the
// service cannot have seen any of the read.
type reader struct{ base http.RoundTripper }

// RoundTrip sends one read. If a kept connection breaks, the transport connects
// anew: a read that had a connection once may have been seen.
func (t *reader) RoundTrip(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err := t.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	// A transport of another kind may not tell of its connections.
	if _, tells := t.base.(*http.Transport); err != nil && tells && !connected.Load() {
		err = fmt.Errorf("%w: %w", errNotConnected, err)
	}
	return resp, err
}

// ServeHTTP passes a request on to the service, or refuses it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.gate.o.RefuseNothing {
		p.observe(w, r)
		return
	}
	wr, err := write{Write: admission.Write{What: r.Method}}, checkUpgrade(r)
	if err == nil {
		err = p.checkHost(r)
	}
	if err == nil {
		wr, err = p.gate.read(r)
	}
	if err == nil && wr.Resource == "" && !wr.exempt {
		err = checkNoBody(r)
	}
	switch {
	case err != nil:
		p.refuse(w, r, wr, err)
	case wr.Resource == "":
		p.reads.ServeHTTP(w, r)
	default:
		p.write(w, r, wr)
	}
}

// refuse answers a request before its body has been received. Then it reads and
// drops what the client still sends: a client that is cut off while it sends
// may miss the answer.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, wr write, err error) {
	if r.ContentLength == 0 || r.ProtoMajor != 1 { // HTTP/2 tells clients to stop
		p.gate.refuse(w, wr, err)
		return
	}
	control := http.NewResponseController(w)
	// Not every server can set a deadline; then its own limits count.
	_ = control.SetReadDeadline(time.Now().Add(p.o.ReceiveWithin))
	w.Header().Set("Connection", "close") // otherwise the answer would wait for the body
	p.gate.refuse(w, wr, err)
	_ = control.Flush()
	if r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, p.o.MaxBody)
	}
}

// checkHost refuses a request for a host by which the proxy is not called.
func (p *Proxy) checkHost(r *http.Request) error { return p.hosts.Check(r, "croft proxy --host") }

// checkNoBody refuses a read with a body. Some services take such a body for
// the next request, which nobody has checked.
func checkNoBody(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	return &admission.Refusal{Status: http.StatusBadRequest, Code: "invalid", Err: fmt.Errorf(
		"%w request: a %s has no body here; leave it out, "+
			"or have the operator exempt this request by a rule (croft proxy --exempt)", fence.ErrInvalid, r.Method)}
}

// checkUpgrade refuses requests that would turn the connection into something
// else. The gate could not check what flows through it.
func checkUpgrade(r *http.Request) error {
	if r.Method != http.MethodConnect && r.Header.Get("Upgrade") == "" &&
		!strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") {
		return nil
	}
	return &admission.Refusal{Status: http.StatusNotImplemented, Code: "invalid", Err: fmt.Errorf(
		"%w request: connections are not upgraded here (WebSocket, CONNECT, h2c), "+
			"because what flows through them cannot be checked; "+
			"use plain requests, or connect past the proxy for what writes nothing", fence.ErrInvalid)}
}

func (p *Proxy) write(w http.ResponseWriter, r *http.Request, wr write) {
	start := time.Now()
	arrival, err := p.gate.core.Arrive(r.Context(), wr.Write)
	if err != nil {
		p.refuse(w, r, wr, err)
		return
	}
	defer arrival.Depart()
	control := http.NewResponseController(w)
	body := http.MaxBytesReader(w, r.Body, p.o.MaxBody)
	size, whole := r.ContentLength, io.Reader(body)
	if size > p.o.MaxBody {
		p.refuse(w, r, wr, receiving(&http.MaxBytesError{Limit: p.o.MaxBody}))
		return
	}
	if !p.o.StreamBodies {
		_ = control.SetReadDeadline(time.Now().Add(p.o.ReceiveWithin)) // the time until now does not count
		got, err := receive(kept{body, func(n int64) error { return arrival.Keep(n, p.o.MaxBodies, p.o.MaxBody) }})
		if err != nil {
			p.refuse(w, r, wr, err)
			return
		}
		defer got.close()
		_ = control.SetReadDeadline(time.Time{})
		size, whole = got.size, got
	}
	if err := checkTrailer(r.Trailer); err != nil { // the trailer is known now that the body is here
		p.refuse(w, r, wr, err)
		return
	}
	passage, err := arrival.Enter(r.Context())
	if err != nil {
		p.gate.refuse(w, wr, err)
		return
	}
	defer passage.InDoubt("the proxy failed") // has no effect if the passage has ended otherwise
	if p.o.StreamBodies {
		_ = control.SetReadDeadline(time.Now().Add(p.o.ReceiveWithin)) // the wait for the turn does not count
	}
	if p.freeOnLeave {
		defer context.AfterFunc(r.Context(), passage.FreeTurn)()
	}
	// From here on it does not matter if the client leaves. A sent write cannot
	// be taken back, and until it is answered nobody else may come in.
	ctx, cancel := context.WithTimeoutCause(passage.Context(), p.o.AnswerWithin, overhttp.ErrNoAnswer)
	defer cancel()
	x := &overhttp.Exchange{Passage: passage, Context: ctx, Gate: p.gate.core, Start: start}
	out := r.WithContext(x.With(ctx))
	out.Body, out.ContentLength = io.NopCloser(whole), size
	if size == 0 {
		out.Body = http.NoBody
	}
	if len(r.Trailer) > 0 {
		out.ContentLength = -1
	}
	p.writes.ServeHTTP(&overhttp.Writer{ResponseWriter: w, Control: control, Stall: p.stall}, out)
}

// checkTrailer refuses trailers that would be refused as headers. It also
// refuses those that must not be in a trailer, because they could not be sent
// on.
func checkTrailer(trailer http.Header) error {
	name := steers(trailer)
	for _, never := range []string{"Content-Length", "Trailer"} {
		if _, is := trailer[never]; is {
			name = never
		}
	}
	if name != "" {
		return steered(name)
	}
	return nil
}

// Close lets no more writes in, waits until ctx ends for those inside, and
// gives the leases back; see [Gate.Close]. Call it before the server is shut
// down, or together with that: a server waits for the writes that wait for
// their turn.
func (p *Proxy) Close(ctx context.Context) error {
	err := p.gate.Close(ctx)
	for _, t := range []http.RoundTripper{p.o.Transport, p.writes.Transport} {
		if idle, ok := t.(interface{ CloseIdleConnections() }); ok {
			idle.CloseIdleConnections()
		}
	}
	return err
}
