package gcs

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fault is what happens to a request on its way.
type fault struct {
	// status is the proxy's answer instead of the server's. 0 leaves the
	// server's answer.
	status int
	// delivered passes the request on to the server all the same.
	delivered bool
	// cut ends the connection instead of answering.
	cut bool
	// before and after are called around the server's work.
	before, after func()
	// body is the body of the proxy's answer.
	body string
	// date is the date of the answer, if it is not the server's.
	date time.Time
	// half breaks the answer off in the middle of its body.
	half bool
}

// proxy stands in front of a server and does to requests what a test wants. It
// has a port of its own, so the client does not know.
type proxy struct {
	*httptest.Server
	target *url.URL
	// shift is how far the server's clock seems ahead, in answers with a fault.
	shift time.Duration

	mu   sync.Mutex
	when func(r *http.Request) *fault
}

func newProxy(tb testing.TB, endpoint string) *proxy {
	tb.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{target: target}
	p.Server = httptest.NewServer(p)
	tb.Cleanup(p.Close)
	return p
}

// on sets what happens to requests from now on. nil passes them on.
func (p *proxy) on(when func(r *http.Request) *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.when = when
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	when := p.when
	p.mu.Unlock()
	var f *fault
	if when != nil {
		f = when(r)
	}
	forward := &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(pr *httputil.ProxyRequest) {
		pr.SetURL(p.target)
		pr.Out.Host = pr.In.Host // so that uploads continue through the proxy
	}}
	if f == nil {
		forward.ServeHTTP(w, r)
		return
	}
	if f.before != nil {
		f.before()
	}
	answer := httptest.NewRecorder()
	if f.delivered || f.status == 0 && !f.cut {
		forward.ServeHTTP(answer, r)
	}
	if f.after != nil {
		f.after()
	}
	switch {
	case f.cut:
		panic(http.ErrAbortHandler)
	case f.status != 0:
		w.Header().Set("Content-Type", "application/json")
		if !f.date.IsZero() {
			w.Header().Set("Date", f.date.UTC().Format(http.TimeFormat))
		}
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, f.body)
	default:
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		if p.shift != 0 {
			w.Header().Set("Date", time.Now().Add(p.shift).UTC().Format(http.TimeFormat))
		}
		if f.half {
			w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
			answer.Body.Truncate(answer.Body.Len() / 2)
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		if f.half {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// isWrite reports whether a request changes an object.
func isWrite(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// nth applies a fault to the n-th request that want picks, counted from 1.
func nth(n int64, want func(*http.Request) bool, f *fault) func(*http.Request) *fault {
	var seen atomic.Int64
	return func(r *http.Request) *fault {
		if want(r) && seen.Add(1) == n {
			return f
		}
		return nil
	}
}

// carrier is a client's transport. A test counts, holds and changes requests
// with it.
type carrier struct {
	reads, writes atomic.Int64
	// strip names parameters to leave out, like a client that does not send
	// conditions.
	strip []string

	mu   sync.Mutex
	skip int           // this many writes pass before one is held
	held chan struct{} // closed when the write to be held has arrived
	free chan struct{} // closed to let it go
}

func (c *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWrite(req) {
		c.writes.Add(1)
		c.mu.Lock()
		held, free := c.held, c.free
		if c.skip > 0 {
			c.skip, held = c.skip-1, nil
		} else {
			c.held = nil
		}
		c.mu.Unlock()
		if held != nil {
			close(held)
			<-free
		}
	} else {
		c.reads.Add(1)
	}
	if len(c.strip) > 0 {
		query := req.URL.Query()
		for _, name := range c.strip {
			query.Del(name)
		}
		req = req.Clone(req.Context())
		req.URL.RawQuery = query.Encode()
	}
	return shared.RoundTrip(req)
}

// hold holds the next write. It returns a channel that is closed when the write
// has arrived, and a function that lets it go.
func (c *carrier) hold() (arrived <-chan struct{}, release func()) { return c.holdAfter(0) }

// holdAfter is hold for the write after skip others.
func (c *carrier) holdAfter(skip int) (arrived <-chan struct{}, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skip = skip
	c.held, c.free = make(chan struct{}), make(chan struct{})
	free := c.free
	return c.held, func() { close(free) }
}

// sent returns how many requests were sent since the last call.
func (c *carrier) sent() int64 { return c.reads.Swap(0) + c.writes.Swap(0) }
