package httpfence

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/croft-dev/croft/internal/admission/overhttp"
)

// forwarder sends writes to the service, each at most once and on a connection
// of its own.
type forwarder struct{ base *http.Transport }

// RoundTrip sends one write. Its passage ends with the last byte of the answer,
// or when it is certain that none will come.
func (f *forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := overhttp.ExchangeIn(r.Context())
	if !ok {
		return nil, errors.New("a request that was not let in")
	}
	resp, err := x.Send(f.base, r)
	if err != nil {
		return nil, err
	}
	resp.Body = &answer{ReadCloser: resp.Body, exchange: x, status: resp.StatusCode}
	return resp, nil
}

// CloseIdleConnections closes the connections that are not in use.
func (f *forwarder) CloseIdleConnections() { f.base.CloseIdleConnections() }

// answer is the body of the service's answer. The write's turn ends with it. It
// is read to its end even if the client has left.
type answer struct {
	io.ReadCloser
	exchange *overhttp.Exchange
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
	switch {
	case a.over.Swap(true):
	case errors.Is(err, io.EOF):
		_ = a.exchange.Answered(a.status) // the client has the answer of a gateway as well
	default:
		_ = a.exchange.BrokeOff(err)
	}
}
