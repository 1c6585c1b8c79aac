package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
)

const (
	// callLimit bounds a call whose context lasts longer.
	callLimit = 30 * time.Second
	// silence is how long a listing or a stream may be silent. A server sends
	// something into a quiet stream every 15 seconds.
	silence = time.Minute
	// maxProblem bounds how much of a refusal is read.
	maxProblem = 1 << 20
)

// problemError is a refusal of the server.
type problemError struct {
	error
	p wire.Problem
}

// Unwrap returns the error that the refusal stands for.
func (e *problemError) Unwrap() error { return e.error }

// isNotFound reports whether the server has nothing that it may show.
func isNotFound(err error) bool {
	var p *problemError
	return errors.As(err, &p) && p.p.Code == wire.NotFound
}

// ask makes a call and reads the whole answer.
func (s *Store) ask(ctx context.Context, method, path string, body []byte, most int64) ([]byte, error) {
	limited, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("no answer within %s", callLimit))
	defer cancel()
	stop := context.AfterFunc(s.life, cancel)
	defer stop()
	resp, err := s.do(limited, method, path, body)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	if int64(len(text)) > most {
		return nil, unread(fmt.Errorf("it has more than %d bytes", most))
	}
	return text, nil
}

// do sends a request, and returns the answer if the server has not refused.
func (s *Store) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	if s.life.Err() != nil {
		return nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, wait.Ended(ctx)
	}
	header := http.Header{}
	if body != nil {
		header.Set("Content-Type", wire.JSON)
		// net/http may send the request again if the server has closed an idle
		// connection. The header itself is not sent.
		header["Idempotency-Key"] = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	return s.send(req)
}

// send sends a request, and returns the answer if the server has not refused.
func (s *Store) send(req *http.Request) (*http.Response, error) {
	var connected atomic.Int32
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Add(1) },
	}))
	token, err := s.token.read()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, classify(err, connected.Load())
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	err = refusal(resp)
	if connected.Load() > 1 && store.IsFault(err) {
		// A copy was sent before this one, and may have taken effect.
		err = &store.UnknownError{Err: err}
	}
	return nil, err
}

// classify tells faults from unknown outcomes. connected is how often the call
// has had a connection: without one, nothing was sent.
func classify(err error, connected int32) error {
	var call *url.Error
	if errors.As(err, &call) {
		err = call.Err // without the URL, which is long
	}
	var alert *net.OpError
	switch {
	case connected == 0:
		return store.Unreachable(err)
	case connected == 1 && errors.As(err, &alert) && alert.Op == "remote error" &&
		strings.Contains(alert.Err.Error(), "certificate"):
		// The server refused the handshake, so it has read no request. In TLS
		// 1.3 the client learns of it only now. Other alerts may come later.
		return store.Fault(fmt.Errorf("the server refuses this client's certificate, or wants one: %w", err))
	}
	return err
}

// refusal returns the error in an answer that is not OK.
func refusal(resp *http.Response) error {
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && kind == wire.Refused {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
		if err != nil {
			return err
		}
		p, err := wire.ReadProblem(text)
		if err == nil {
			return &problemError{p.Err(), p}
		}
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return fmt.Errorf("the server redirects (%s), and Croft follows no redirects; name the right URL", resp.Status)
	}
	return fmt.Errorf("the answer is %s, and none of a Croft server; see whether the URL is right", resp.Status)
}

// open begins a listing or a stream. Its body breaks when it is silent for too
// long, when ctx ends, or when the store is closed.
func (s *Store) open(ctx context.Context, path string) (*http.Response, error) {
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(ErrClosed) })
	timer := time.AfterFunc(silence, func() { cancel(errSilent) })
	end := func() { stop(); timer.Stop(); cancel(nil) }
	resp, err := s.do(ctx, http.MethodGet, path, nil) //nolint:bodyclose // heard closes it
	if err != nil {
		end()
		return nil, s.explain(caller, err)
	}
	resp.Body = &heard{resp.Body, timer, end}
	return resp, nil
}

var errSilent = fmt.Errorf("the server was silent for %s", silence)

// heard is a body that must not be silent for too long.
type heard struct {
	io.ReadCloser
	timer *time.Timer
	end   func()
}

func (h *heard) Read(b []byte) (int, error) {
	n, err := h.ReadCloser.Read(b)
	if n > 0 {
		h.timer.Reset(silence)
	}
	return n, err
}

func (h *heard) Close() error {
	h.end()
	return h.ReadCloser.Close()
}

// explain returns the error of a call: a refusal or a fault as it is, and
// anything else as unknown.
func (s *Store) explain(ctx context.Context, err error) error {
	var p *problemError
	if errors.As(err, &p) || store.IsFault(err) {
		return err
	}
	return s.failure(ctx, err)
}

// failure is the unknown outcome of a call that broke. It says so if that is
// because ctx has ended, or the store was closed.
func (s *Store) failure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		err = wait.Ended(ctx)
	case s.life.Err() != nil:
		err = ErrClosed
	}
	return store.Unknown(err)
}
