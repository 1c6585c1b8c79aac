package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/internal/admission/overhttp"
)

// Proxy is a reverse proxy for an MCP server that speaks streamable HTTP. It is
// an http.Handler, safe for concurrent use. Clients call it at the path of the
// upstream's URL, and name the stamp of their writes in the header Croft-Stamp.
//
// Every write has a connection of its own and is sent at most once. It goes on
// when its client leaves. The proxy follows no redirect.
type Proxy struct {
	*core
	upstream *url.URL
	hosts    overhttp.Hosts
	reads    http.RoundTripper
	writes   *http.Transport
	receive  time.Duration
	bodies   int64
	stall    time.Duration

	mu      sync.Mutex
	pending map[string]*exchange     // unanswered writes of sessions, by session and id
	streams map[string]chan struct{} // closed at the end of a write, by session and id of an event
}

// mostRequests bounds the requests at a proxy, streams included. One client may
// have as many as it leaves free.
const mostRequests = 1 << 14

// NewProxy makes a proxy in front of a server. Its error matches
// fence.ErrInvalid. Close the proxy when it is no longer used.
func NewProxy(upstream *url.URL, o ProxyOptions) (*Proxy, error) {
	if err := overhttp.CheckUpstream(upstream); err != nil {
		return nil, err
	}
	if o.Stamp != (fence.Stamp{}) {
		return nil, fmt.Errorf("%w proxy: it takes stamps from its requests, so its options have none",
			fence.ErrInvalid)
	}
	if err := o.Credential.checkHeader(); err != nil {
		return nil, err
	}
	hosts, err := overhttp.NewHosts(o.Hosts)
	if err != nil {
		return nil, err
	}
	core, err := newCore(o.Options, 0)
	if err != nil {
		return nil, err
	}
	settle := core.gate.Options.Settle
	if err := overhttp.FillTimes(settle, &core.o.AnswerWithin, &o.ConnectWithin, &o.ReceiveWithin); err != nil {
		return nil, err
	}
	if o.MaxBodies == 0 {
		o.MaxBodies = 128 << 20
	}
	if o.MaxBodies < MaxFrame {
		return nil, fmt.Errorf("%w MaxBodies %d: it must be at least as much as one message may have (%d)",
			fence.ErrInvalid, o.MaxBodies, MaxFrame)
	}
	to := *upstream
	if to.Path == "" {
		to.Path = "/"
	}
	reads := overhttp.Reads(o.Transport)
	return &Proxy{
		core: core, upstream: &to, hosts: hosts, reads: reads,
		writes:  overhttp.NewTransport(reads, o.ConnectWithin, settle),
		receive: o.ReceiveWithin, bodies: o.MaxBodies, stall: overhttp.Stall,
		pending: map[string]*exchange{}, streams: map[string]chan struct{}{},
	}, nil
}

// Close lets no more requests in, and waits until ctx ends for the writes that
// are inside. It gives the leases back.
func (p *Proxy) Close(ctx context.Context) error {
	err := p.gate.Close(ctx)
	for _, t := range []http.RoundTripper{p.reads, p.writes} {
		if idle, ok := t.(interface{ CloseIdleConnections() }); ok {
			idle.CloseIdleConnections()
		}
	}
	return err
}

// request is one request of a client.
type request struct {
	p     *Proxy
	r     *http.Request
	w     *overhttp.Writer
	at    *admission.Attendance
	heads heads
	m     message // zero if there is none

	streams bool          // the answer is a stream of events, and has begun
	left    time.Duration // how long the client may still keep a write waiting; see send
	gone    bool          // the client takes nothing any more
}

// ServeHTTP passes a message of a client on, or refuses it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{p: p, r: r, w: &overhttp.Writer{
		ResponseWriter: w, Control: http.NewResponseController(w), Stall: p.stall,
	}}
	if r.ContentLength != 0 {
		// The server drops what is left of a message that has been answered.
		_ = q.w.Control.SetReadDeadline(time.Now().Add(p.receive)) // not every server can
		w.Header().Set("Connection", "close")                      // otherwise the answer would wait for the rest
	}
	var err error
	if q.at, err = p.gate.Attend(overhttp.ClientOf(r), mostRequests); err != nil {
		q.refuseRequest(err)
		return
	}
	defer q.at.Leave()
	if err := p.hosts.Check(r, "croft mcp --host"); err != nil {
		q.refuseRequest(err)
		return
	}
	if err := p.hosts.CheckOrigin(r); err != nil {
		q.refuseRequest(err)
		return
	}
	if r.URL.EscapedPath() != p.upstream.EscapedPath() || r.URL.RawQuery != "" || r.URL.ForceQuery {
		q.fail(&fault{
			status: http.StatusNotFound, code: invalidRequest,
			say: "the proxy answers at " + p.upstream.EscapedPath() + " and nowhere else",
		})
		return
	}
	var wrong *fault
	q.heads, wrong = readHeads(r.Header)
	switch sessionMethod := q.heads.era() == sessions; {
	case r.Method == http.MethodPost:
		q.post(wrong)
	case wrong != nil:
		q.fail(wrong)
	case r.Method == http.MethodGet && sessionMethod:
		q.listen()
	case r.Method == http.MethodDelete && sessionMethod:
		q.end()
	default:
		w.Header().Set("Allow", http.MethodPost)
		q.fail(&fault{
			status: http.StatusMethodNotAllowed, code: invalidRequest,
			say: "this revision has no such request; send POST",
		})
	}
}

// pieceOfBody is how much of a message is read at a time.
const pieceOfBody = 16 << 10

// receiveBody reads the message of a request. It counts the memory that the
// message takes when it is parsed.
func (q *request) receiveBody() ([]byte, error) {
	body := http.MaxBytesReader(q.w.ResponseWriter, q.r.Body, MaxFrame)
	var text bytes.Buffer
	for {
		if err := q.keep(pieceOfBody); err != nil {
			return nil, err
		}
		_, err := io.CopyN(&text, body, pieceOfBody)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = q.w.Control.SetReadDeadline(time.Time{})
			q.w.Header().Del("Connection")
			values := countValues(text.Bytes())
			if values > mostValues {
				return nil, errManyValues
			}
			return text.Bytes(), q.keep(int64(values) * bytesOfValue)
		default:
			return nil, err
		}
	}
}

// These bound the values of a client's message.
const (
	mostValues   = 1 << 20
	bytesOfValue = 96 // of memory, beside its text
)

// keep counts memory against the client.
func (q *request) keep(n int64) error {
	return q.at.Keep(n, q.p.bodies, MaxFrame+mostValues*bytesOfValue)
}

var errManyValues = fmt.Errorf("it has more than %d values", mostValues)

// post passes on a message. A fault of its headers is the answer to it, so that
// the client finds its id there.
func (q *request) post(wrong *fault) {
	h := q.r.Header
	if !isType(h, "application/json") || h.Get("Content-Encoding") != "" {
		q.fail(&fault{
			status: http.StatusUnsupportedMediaType, code: invalidRequest,
			say: "a message is application/json in UTF-8, not compressed; nothing was sent on",
		})
		return
	}
	if !accepts(h, "application/json") || !accepts(h, eventStream) {
		q.fail(&fault{
			status: http.StatusNotAcceptable, code: invalidRequest,
			say: "the client must accept application/json and " + eventStream + "; nothing was sent on",
		})
		return
	}
	text, err := q.receiveBody()
	var long *http.MaxBytesError
	var full *admission.Refusal
	switch {
	case errors.As(err, &full):
		q.refuseRequest(err)
		return
	case errors.As(err, &long):
		q.fail(&fault{
			status: http.StatusRequestEntityTooLarge, code: invalidRequest,
			say: "the message is longer than 16 MiB; nothing was sent on",
		})
		return
	case errors.Is(err, errManyValues):
		q.fail(&fault{
			status: http.StatusRequestEntityTooLarge, code: invalidRequest,
			say: "the message is refused, and nothing was sent on: " + err.Error(),
		})
		return
	case err != nil:
		q.fail(&fault{code: invalidRequest, say: "the message broke off; nothing was sent on"})
		return
	}
	m, err := decode(text)
	if err == nil && len(m.id) > mostID {
		err = fmt.Errorf("its id is longer than %d bytes", mostID)
	}
	if m.isRequest() {
		q.m = m
	}
	if err != nil {
		q.fail(&fault{code: invalidRequest, say: "the message is refused, and nothing was sent on: " + err.Error()})
		return
	}
	if wrong == nil {
		wrong = q.heads.check(m)
	}
	if wrong != nil {
		q.fail(wrong)
		return
	}
	m = q.p.cleaned(m)
	if !m.isRequest() {
		q.notify(m)
		return
	}
	q.m = m
	tool, kind, wrong := q.p.classify(m)
	switch {
	case wrong != nil && !q.p.o.RefuseNothing:
		q.fail(wrong)
	case wrong != nil:
		q.p.observe(q.r.Context(), admission.Write{What: tool, Client: overhttp.ClientOf(q.r)}, wrong.refusal())
		q.read()
	case kind == write:
		q.write(tool)
	default:
		q.read()
	}
}

// notify passes on a notification, or an answer to a request of the server.
func (q *request) notify(m message) {
	switch {
	case m.method != "" && !isNotification(m.method):
		q.fail(&fault{
			code: invalidRequest,
			say:  "a call without an id is refused, because a server may carry it out; nothing was sent on",
		})
		return
	case m.method == "" && q.heads.era() == sessionless:
		q.fail(&fault{code: invalidRequest, say: "this revision has no answers of clients; nothing was sent on"})
		return
	case m.method == "notifications/cancelled":
		var ok bool
		if m, ok = q.p.cancelled(q.heads, m); !ok {
			q.w.WriteHeader(http.StatusAccepted)
			return
		}
	}
	resp, err := q.ask(http.MethodPost, m)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		q.w.WriteHeader(http.StatusAccepted)
		return
	}
	q.say(q.p.newStatusReply(resp, message{}))
}

// ask sends a read, a notification, or a request without a message. If it
// fails, the client has its answer.
func (q *request) ask(method string, m message) (*http.Response, error) {
	resp, err := q.p.reads.RoundTrip(q.p.outgoing(q.r.Context(), method, q.heads, m))
	if err == nil {
		return resp, nil
	}
	if q.r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	q.p.gate.Emit(readFailed(q.r.Method, err))
	q.fail(&fault{
		status: http.StatusBadGateway, code: internalError,
		say: "the server behind the proxy did not answer; try again",
	})
	return nil, err
}

// outgoing makes a request to the upstream. The message is zero if there is
// none.
func (p *Proxy) outgoing(ctx context.Context, method string, h heads, m message) *http.Request {
	if method != http.MethodGet { // only a stream can be resumed
		h.lastEvent = ""
	}
	out := (&http.Request{
		Method: method, URL: p.upstream, Host: p.upstream.Host, Header: h.outgoing(m, p.o.Credential),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if m.body != nil {
		text := encode(m.body)
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	}
	return out
}

// read passes a request on that writes nothing, and its answer.
func (q *request) read() {
	resp, err := q.ask(http.MethodPost, q.m)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	reply, err := q.await(resp, q.m.id, nil)
	switch {
	case err == nil:
		q.say(reply.shownBy(q.p.core, q.m.method))
	case q.r.Context().Err() != nil || q.gone || q.streams: // a stream that ends early can be resumed
	case errors.Is(err, errNoRoom):
		q.w.Header().Set("Retry-After", "1")
		q.fail(&fault{
			status: http.StatusServiceUnavailable, code: internalError, say: err.Error() + "; try again later",
		})
	default:
		q.p.gate.Emit(readFailed(q.m.method, err))
		q.fail(&fault{
			status: http.StatusBadGateway, code: internalError,
			say: "the answer of the server behind the proxy cannot be read",
		})
	}
}

// listen passes on the messages that the upstream sends by itself, or after the
// event that the client has seen last.
func (q *request) listen() {
	if !accepts(q.r.Header, eventStream) || q.r.ContentLength != 0 {
		q.fail(&fault{
			status: http.StatusNotAcceptable, code: invalidRequest,
			say: "GET has no body here, and the client must accept " + eventStream,
		})
		return
	}
	q.p.awaitStream(q.r.Context(), q.heads)
	resp, err := q.ask(http.MethodGet, message{})
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !isType(resp.Header, eventStream) {
		q.say(q.p.newStatusReply(resp, message{}))
		return
	}
	q.stream(resp)
	stream := q.newEvents(resp, nil)
	for !q.gone {
		e, m, err := q.p.nextMessage(stream)
		if err != nil {
			return
		}
		if m.body != nil && m.method == "" {
			if m, err = restored(m); err != nil {
				q.p.o.Dropped(err)
				continue
			}
			m = q.p.shown("", m)
		}
		q.send(e, m.body)
	}
}

// end ends a session.
func (q *request) end() {
	resp, err := q.ask(http.MethodDelete, message{})
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		q.w.WriteHeader(resp.StatusCode)
		return
	}
	q.say(q.p.newStatusReply(resp, message{}))
}

// refuseRequest answers a request whose message is not read.
func (q *request) refuseRequest(err error) {
	r := admission.RefusalOf(err)
	if r.Retry > 0 {
		q.w.Header().Set("Retry-After", strconv.Itoa(int((r.Retry+time.Second-1)/time.Second)))
	}
	q.fail(&fault{status: r.Status, code: invalidRequest, say: r.Detail()})
}

// fail answers a request with an error.
func (q *request) fail(f *fault) {
	status := f.status
	switch {
	case status != 0:
	case f.code == methodNotFound && q.heads.era() == sessions:
		status = http.StatusOK // clients would take 404 for the end of the session
	case f.code == methodNotFound:
		status = http.StatusNotFound
	default:
		status = http.StatusBadRequest
	}
	q.say(reply{status: status, body: f.answer(q.m)})
}
