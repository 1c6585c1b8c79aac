package httpfence

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission"
)

// forwarder sends writes to the service, each at most once and on a connection
// of its own. The service may close a kept connection at the moment it is used.
// Then nobody knows whether it has seen the write.
type forwarder struct{ base *http.Transport }

func newForwarder(o ProxyOptions, settle time.Duration) *forwarder {
	dialer := &net.Dialer{Timeout: o.ConnectWithin, Control: boundUnacknowledged(settle)}
	base := &http.Transport{
		DisableKeepAlives:   true,
		DisableCompression:  true,
		TLSHandshakeTimeout: o.ConnectWithin,
		// Only HTTP/1.1: there, cutting the connection cuts this write.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			x, ok := ctx.Value(exchangeKey).(*exchange)
			if !ok {
				_ = conn.Close()
				return nil, errors.New("a connection that belongs to no write")
			}
			return &guardedConn{Conn: conn, exchange: x}, nil
		},
	}
	if t, ok := o.Transport.(*http.Transport); ok {
		base.TLSClientConfig = t.TLSClientConfig.Clone()
		base.Proxy = t.Proxy
	}
	return &forwarder{base}
}

// exchange connects a write with its connection to the service.
type exchange struct {
	passage *admission.Passage
	ctx     context.Context
	gate    *admission.Gate
	start   time.Time
}

// RoundTrip sends one write. Its passage ends with the last byte of the answer,
// or when it is certain that none will come.
func (f *forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey).(*exchange)
	if !ok {
		return nil, errors.New("a request that was not let in")
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err := f.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		err = errors.New("the service switched to another protocol, unasked")
	}
	if err != nil {
		return nil, x.failed(r.Context(), err, connected.Load())
	}
	resp.Body = &answer{ReadCloser: resp.Body, exchange: x, status: resp.StatusCode}
	return resp, nil
}

// failed ends the passage of a write without an answer.
func (x *exchange) failed(ctx context.Context, err error, connected bool) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	p := x.passage
	if !connected {
		p.NotSent()
		known := &admission.Refusal{
			Status: http.StatusBadGateway, Code: "unknown", Resource: p.Write.Resource, Retry: time.Second, Err: err,
			Say: "the service behind the proxy cannot be reached; nothing was sent, try again",
		}
		x.gate.Emit(gate.Event{
			Kind: gate.Refused, Resource: p.Write.Resource, Method: p.Write.What, Key: p.Write.Stamp.Key,
			Token: p.Write.Stamp.Token, Status: known.Status, Code: known.Code, Err: err,
		})
		return known
	}
	x.doubt(err)
	status := http.StatusBadGateway
	if errors.Is(err, errNoAnswer) {
		status = http.StatusGatewayTimeout
	}
	return &admission.Refusal{
		Status: status, Code: "unknown", Resource: p.Write.Resource, Sent: true, Err: err,
		Say: "the write was sent to the service and it is not known whether it took effect, or still will; " +
			"the resource is closed until that has settled",
	}
}

func (x *exchange) doubt(err error) {
	p := x.passage
	x.gate.Emit(gate.Event{
		Kind: gate.InDoubt, Resource: p.Write.Resource, Method: p.Write.What, Key: p.Write.Stamp.Key,
		Token: p.Write.Stamp.Token, Err: err,
	})
	p.InDoubt(err.Error())
}

// answer is the body of the service's answer. The write's turn ends with it. It
// is read to its end even if the client has left.
type answer struct {
	io.ReadCloser
	exchange *exchange
	status   int
	over     atomic.Bool
}

// Read reads a piece of the answer, and ends the exchange at its end.
func (a *answer) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if err != nil {
		a.end(err)
	}
	return n, err
}

// Close reads the rest of the answer, within the time that is left.
func (a *answer) Close() error {
	if !a.over.Load() {
		_, err := io.Copy(io.Discard, a.ReadCloser)
		if err == nil {
			err = io.EOF
		}
		a.end(err)
	}
	return a.ReadCloser.Close()
}

func (a *answer) end(err error) {
	if a.over.Swap(true) {
		return
	}
	x := a.exchange
	// A gateway between the proxy and the service does not know what became of
	// the write. Cloudflare's are 520 to 524.
	gateway := a.status == http.StatusBadGateway || a.status == http.StatusGatewayTimeout ||
		a.status >= 520 && a.status <= 524
	if errors.Is(err, io.EOF) && gateway {
		x.doubt(fmt.Errorf("a gateway before the service answered %d", a.status))
		return
	}
	if errors.Is(err, io.EOF) {
		w := x.passage.Write
		x.gate.Emit(gate.Event{
			Kind: gate.Answered, Resource: w.Resource, Method: w.What, Key: w.Stamp.Key, Token: w.Stamp.Token,
			Status: a.status, Took: time.Since(x.start),
		})
		x.passage.Answered()
		return
	}
	if cause := context.Cause(x.ctx); cause != nil {
		err = cause
	}
	x.doubt(fmt.Errorf("the answer broke off: %w", err))
}

// guardedConn is the connection of one write. It sends nothing once the gate's
// lease is over. When the write is given up, data not yet sent is dropped.
type guardedConn struct {
	net.Conn
	exchange *exchange
}

// Write checks the lease as late as possible. A process that was stopped for
// long finds out here.
func (t *guardedConn) Write(b []byte) (int, error) {
	return writeWhile(t.Conn, b, t.exchange.passage.Alive)
}

// Close closes the connection. If the write was given up, it does not send the
// rest.
func (t *guardedConn) Close() error {
	if tcp, ok := t.Conn.(*net.TCPConn); ok && t.exchange.ctx.Err() != nil {
		_ = tcp.SetLinger(0)
	}
	return t.Conn.Close()
}
