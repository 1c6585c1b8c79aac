package server

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
)

// tracker notes which status was sent.
type tracker struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (t *tracker) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *tracker) Write(b []byte) (int, error) {
	if t.status == 0 {
		t.status = http.StatusOK
	}
	return t.ResponseWriter.Write(b)
}

// Unwrap lets the response's controller reach the connection.
func (t *tracker) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// checkBody refuses the body of a call that takes none.
func (c *call) checkBody() error {
	if c.ContentLength == 0 || c.Method == http.MethodPost || c.Method == http.MethodPut {
		return nil
	}
	c.w.Header().Set("Connection", "close")
	return refuse(wire.NewProblem(wire.Invalid, "%s takes no body", c.Method))
}

// body reads the body of a call. A slow client has only so much time.
func (c *call) body() ([]byte, error) { return c.bodyOf(wire.MaxBody) }

// longBody reads a body about items, which may be long. Few of those are in
// memory at a time.
func (s *Server) longBody(c *call) ([]byte, error) {
	if c.ContentLength <= wire.MaxBody || c.ContentLength > wire.MaxWorkBody {
		return c.body()
	}
	give, ok := s.hugeShares.take(c.id.Name, 1)
	if !ok {
		return nil, busy("very long bodies of one client")
	}
	if !s.huge.enter() {
		give()
		return nil, busy("very long bodies")
	}
	before := c.slot
	c.slot = sync.OnceFunc(func() { s.huge.leave(); give(); before() })
	// As many times the usual time as the body is long.
	_ = c.out.SetReadDeadline(time.Now().Add(receiveWithin * time.Duration(1+c.ContentLength/wire.MaxBody)))
	return c.bodyOf(wire.MaxWorkBody)
}

// bodyOf reads a body of at most so many bytes.
func (c *call) bodyOf(most int64) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil || kind != wire.JSON {
		return nil, refuse(wire.NewProblem(wire.Invalid, "the body must have the Content-Type %s", wire.JSON))
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w.ResponseWriter, c.Request.Body, most))
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		return nil, refuse(wire.NewProblem(wire.TooLarge, "the body has more than %d bytes", most))
	}
	if err != nil {
		// Nothing is wrong with the request itself: the client may ask again.
		p := wire.NewProblem(wire.Unknown, "the body did not arrive whole within %s; ask again", receiveWithin)
		p.Title, p.Status = http.StatusText(http.StatusRequestTimeout), http.StatusRequestTimeout
		return nil, refuse(p)
	}
	// While the call is worked on, the connection is read to learn that the
	// client has gone.
	_ = c.out.SetReadDeadline(time.Time{})
	return body, nil
}

// send sends a whole answer.
func (c *call) send(status int, kind string, body []byte) {
	_ = c.deliver(status, kind, body) // the client may have gone
}

// deliver sends a whole answer. Its error says that the client has not got it.
func (c *call) deliver(status int, kind string, body []byte) error {
	parts := min(1+len(body)>>20, maxParts)
	_ = c.out.SetWriteDeadline(time.Now().Add(time.Duration(parts) * sendWithin))
	h := c.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	c.w.WriteHeader(status)
	if _, err := c.w.Write(append(body, '\n')); err != nil {
		return err
	}
	if err := c.out.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// problem sends a refusal.
func (c *call) problem(p wire.Problem) {
	c.told.Code = string(p.Code)
	if p.Code == wire.Busy || p.Code == wire.Unknown {
		c.w.Header().Set("Retry-After", "1")
	}
	c.send(p.Status, wire.Refused, p.Bytes())
}

// fail answers with an error of the server or of its store.
func (c *call) fail(err error) {
	var r refusal
	if errors.As(err, &r) {
		c.problem(r.Problem)
		return
	}
	if errors.Is(err, errBusy) {
		c.problem(wire.NewProblem(wire.Busy, "too many requests wait for the store; nothing was changed; ask again"))
		return
	}
	p := wire.ProblemOf(err)
	if p.Code == wire.Unknown {
		c.told.Err = err // all others are about the client
	}
	c.problem(p)
}

// say answers a probe.
func say(w http.ResponseWriter, word string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, word+"\n") // the client may have gone
}

// readiness remembers for a moment whether the store answers, so that probes
// cost it little.
type readiness struct {
	mu    sync.Mutex
	asked time.Time
	err   error
}

func (r *readiness) check(ctx context.Context, st store.Store) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.asked.IsZero() || now.Sub(r.asked) > time.Second {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_, r.err = st.Now(ctx)
		r.asked = time.Now()
	}
	return r.err
}

// answerReady says whether the server can be given work.
func (s *Server) answerReady(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.life.Err() != nil:
		w.WriteHeader(http.StatusServiceUnavailable)
		say(w, "stopping")
	case s.ready.check(r.Context(), s.st) != nil:
		w.WriteHeader(http.StatusServiceUnavailable)
		say(w, "the store does not answer")
	default:
		say(w, "ready")
	}
}

// slots bounds how much of one kind of work is done at a time.
type slots chan struct{}

func newSlots(n int) slots { return make(slots, n) }

// enter takes a slot, if one is free.
func (s slots) enter() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) leave() { <-s }
