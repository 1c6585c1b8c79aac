package overhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission"
)

// ErrNoAnswer is why a proxy gives a write up.
var ErrNoAnswer = errors.New("the service did not answer in time")

// NewTransport returns the transport for writes. It sends each on a connection
// of its own: the service may close a kept connection at the moment it is used,
// and then nobody knows whether it has seen the write. It has the TLS settings
// and the proxy of the transport for reads.
func NewTransport(reads http.RoundTripper, connectWithin, settle time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: connectWithin, Control: boundUnacknowledged(settle)}
	base := &http.Transport{
		DisableKeepAlives:   true,
		DisableCompression:  true,
		TLSHandshakeTimeout: connectWithin,
		// Only HTTP/1.1: there, cutting the connection cuts this write.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			x, ok := ExchangeIn(ctx)
			if !ok {
				_ = conn.Close()
				return nil, errors.New("a connection that belongs to no write")
			}
			return &Conn{Conn: conn, Exchange: x}, nil
		},
	}
	if t, ok := reads.(*http.Transport); ok {
		base.TLSClientConfig = t.TLSClientConfig.Clone()
		base.Proxy = t.Proxy
	}
	return base
}

// Exchange connects a write with its connection to the service.
type Exchange struct {
	Passage *admission.Passage
	Context context.Context // ends when the write is given up
	Gate    *admission.Gate
	Start   time.Time
}

type exchangeKey struct{}

// With returns a context for the request of a write.
func (x *Exchange) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// ExchangeIn returns the exchange of the context of a request.
func ExchangeIn(ctx context.Context) (*Exchange, bool) {
	x, ok := ctx.Value(exchangeKey{}).(*Exchange)
	return x, ok
}

// Send sends one write, at most once. If it fails, the passage has ended, and
// the error is a refusal. Otherwise the caller ends it, with Answered or Doubt.
func (x *Exchange) Send(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err := base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		err = errors.New("the service switched to another protocol, unasked")
	}
	if err != nil {
		return nil, x.failed(r.Context(), err, connected.Load())
	}
	return resp, nil
}

// failed ends the passage of a write without an answer.
func (x *Exchange) failed(ctx context.Context, err error, connected bool) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	if connected {
		return x.Doubt(err)
	}
	p := x.Passage
	p.NotSent()
	known := &admission.Refusal{
		Status: http.StatusBadGateway, Code: "unknown", Resource: p.Write.Resource, Retry: time.Second, Err: err,
		Say: "the service behind the proxy cannot be reached; nothing was sent, try again",
	}
	x.Gate.Emit(gate.Event{
		Kind: gate.Refused, Resource: p.Write.Resource, Method: p.Write.What, Key: p.Write.Stamp.Key,
		Token: p.Write.Stamp.Token, Status: known.Status, Code: known.Code, Err: err,
	})
	return known
}

// Doubt ends the passage of a write that may or may not take effect. It returns
// what the client is told.
func (x *Exchange) Doubt(err error) error {
	p := x.Passage
	x.Gate.Emit(gate.Event{
		Kind: gate.InDoubt, Resource: p.Write.Resource, Method: p.Write.What, Key: p.Write.Stamp.Key,
		Token: p.Write.Stamp.Token, Err: err,
	})
	p.InDoubt(err.Error())
	status := http.StatusBadGateway
	if errors.Is(err, ErrNoAnswer) {
		status = http.StatusGatewayTimeout
	}
	return &admission.Refusal{
		Status: status, Code: "unknown", Resource: p.Write.Resource, Sent: true, Err: err,
		Say: "the write was sent to the service and it is not known whether it took effect, or still will; " +
			"the resource is closed until that has settled",
	}
}

// BrokeOff is Doubt for an answer that ended too early.
func (x *Exchange) BrokeOff(err error) error {
	if cause := context.Cause(x.Context); cause != nil {
		err = cause
	}
	return x.Doubt(fmt.Errorf("the answer broke off: %w", err))
}

// Answered ends the passage of a write whose answer is here to its end. It
// returns what the client is told instead of the answer if a gateway has
// answered: a gateway does not know what became of the write.
func (x *Exchange) Answered(status int) error {
	// Cloudflare's are 520 to 524.
	if status == http.StatusBadGateway || status == http.StatusGatewayTimeout || status >= 520 && status <= 524 {
		return x.Doubt(fmt.Errorf("a gateway before the service answered %d", status))
	}
	w := x.Passage.Write
	x.Gate.Emit(gate.Event{
		Kind: gate.Answered, Resource: w.Resource, Method: w.What, Key: w.Stamp.Key, Token: w.Stamp.Token,
		Status: status, Took: time.Since(x.Start),
	})
	x.Passage.Answered()
	return nil
}

// Conn is the connection of one write. It sends nothing once the gate's lease
// is over. When the write is given up, data not yet sent is dropped.
type Conn struct {
	net.Conn
	Exchange *Exchange
}

// Write checks the lease as late as possible. A process that was stopped for
// long finds out here.
func (t *Conn) Write(b []byte) (int, error) {
	return writeWhile(t.Conn, b, t.Exchange.Passage.Alive)
}

// Close closes the connection. If the write was given up, it does not send the
// rest.
func (t *Conn) Close() error {
	if tcp, ok := t.Conn.(*net.TCPConn); ok && t.Exchange.Context.Err() != nil {
		_ = tcp.SetLinger(0)
	}
	return t.Conn.Close()
}
