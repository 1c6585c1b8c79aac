package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/internal/admission/overhttp"
)

// exchange is one write of a client over HTTP, until it is answered. The
// proxy's mutex guards its fields from sent on.
type exchange struct {
	p    *Proxy
	key  string // session and id; "" if no message can name the write
	id   string // by which the upstream knows the write
	over chan struct{}

	leave  context.CancelFunc      // ends the wait of a write that is not sent yet
	giveUp context.CancelCauseFunc // puts a write in doubt that was sent
	sent   bool
	gone   bool     // the client has cancelled the write
	events []string // keys of streams that name this write

	// Only the goroutine of the write uses these.
	session string
	last    string        // the id of the newest event
	retry   time.Duration // how long to wait before the stream is resumed
}

// mostEvents bounds how many events of a write's stream are remembered.
const mostEvents = 4096

// write lets a call in, sends it on, and passes on the answer.
func (q *request) write(tool string) {
	w := admission.Write{What: tool, Client: overhttp.ClientOf(q.r)}
	var noStamp error
	w.Stamp, noStamp = overhttp.StampOf(q.r.Header)
	w.Stamped = noStamp == nil
	refuse := func(err error) {
		q.say(reply{status: http.StatusOK, body: refused(q.m, q.p.gate.Refused(w, err))})
	}
	err := q.p.target(q.m, &w, noStamp)
	if q.p.o.RefuseNothing {
		q.p.observe(q.r.Context(), w, err)
		q.read()
		return
	}
	if err != nil {
		refuse(err)
		return
	}
	ctx, leave := context.WithTimeout(q.r.Context(), q.p.o.Wait)
	defer leave()
	x := &exchange{
		p: q.p, id: withOriginal(rand.Text(), q.m.id), over: make(chan struct{}), leave: leave,
		retry: time.Second,
	}
	if !x.register(q.heads, q.m) {
		q.fail(&fault{code: invalidRequest, say: "a request with this id is not answered yet; nothing was sent on"})
		return
	}
	defer x.end()
	q.left = q.p.stall
	var answer reply
	before, err := q.p.letIn(ctx, w, q.m, func(p *admission.Passage) (message, error) {
		var err error
		answer, err = q.exchange(x, p)
		return message{body: answer.body}, err
	})
	q.left, q.w.Stall = 0, q.p.stall // nobody waits any more
	if err != nil {
		refuse(err)
		return
	}
	if answer.body == nil {
		answer = reply{status: http.StatusOK, body: before.body}
	}
	q.say(answer.shownBy(q.p.core, q.m.method))
}

// register enters a write into the table of those that the client can cancel.
// Only in a session is it known which client has made a call.
func (x *exchange) register(h heads, m message) bool {
	if h.session == "" || h.era() != sessions {
		return true
	}
	x.session = h.session
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	x.key = h.session + "\x00" + m.id
	if x.p.pending[x.key] != nil {
		x.key = ""
		return false
	}
	x.p.pending[x.key] = x
	return true
}

// end forgets a write.
func (x *exchange) end() {
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	if x.key != "" {
		delete(x.p.pending, x.key)
	}
	for _, key := range x.events {
		delete(x.p.streams, key)
	}
	close(x.over)
}

// begin notes that a write is about to be sent, and reports whether it may be.
func (x *exchange) begin(giveUp context.CancelCauseFunc) bool {
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	x.sent, x.giveUp = !x.gone, giveUp
	return x.sent
}

// saw notes an event of a write's stream.
func (x *exchange) saw(e event) {
	if x == nil {
		return
	}
	if ms, err := strconv.Atoi(e.retry); err == nil {
		x.retry = min(max(time.Duration(ms)*time.Millisecond, 100*time.Millisecond), 10*time.Second)
	}
	if e.id == "" {
		return
	}
	x.last = e.id
	if x.session == "" {
		return
	}
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	if key := x.session + "\x00" + e.id; len(x.events) < mostEvents && x.p.streams[key] == nil {
		x.p.streams[key] = x.over
		x.events = append(x.events, key)
	}
}

// cancelled notes that a client does not want an answer any more. It returns
// what the upstream is to hear, if anything: it has not seen a write that
// waits.
func (p *Proxy) cancelled(h heads, m message) (message, bool) {
	value, _ := m.params.get("requestId")
	id, err := idText(value)
	if err != nil || h.session == "" {
		return m, true // it cancels no write
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.pending[h.session+"\x00"+id]
	switch {
	case x == nil:
		return m, true
	case x.gone:
		return m, false
	}
	x.gone = true
	x.leave()
	if !x.sent {
		return m, false
	}
	time.AfterFunc(cancelledWithin, func() { x.giveUp(errCancelled) })
	return m.withParams(m.params.with("requestId", x.id)), true
}

// exchange sends a call on and waits for its answer. It ends the passage. From
// here on it does not matter if the client leaves: a sent write cannot be taken
// back, and until it is answered nobody else may come in.
func (q *request) exchange(x *exchange, p *admission.Passage) (reply, error) {
	defer p.InDoubt("the proxy failed") // has no effect if the passage has ended otherwise
	within, cancel := context.WithTimeoutCause(p.Context(), q.p.o.AnswerWithin, overhttp.ErrNoAnswer)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(within)
	defer giveUp(nil)
	if !x.begin(giveUp) {
		p.NotSent()
		return reply{}, &admission.Refusal{
			Code: "unknown", Err: errCancelled, Say: "the client has cancelled the call; nothing was sent",
		}
	}
	sent := &overhttp.Exchange{Passage: p, Context: ctx, Gate: q.p.gate, Start: time.Now()}
	m := q.m
	m.body = m.body.with("id", x.id)
	resp, err := sent.Send(q.p.writes, q.p.outgoing(sent.With(ctx), http.MethodPost, q.heads, m))
	if err != nil {
		return reply{}, err
	}
	status := resp.StatusCode
	answer, err := q.awaitWrite(ctx, resp, x)
	switch {
	case errors.Is(err, errUnreadable):
		return reply{}, sent.Doubt(q.p.o.Credential.hideInError(err))
	case err != nil:
		return reply{}, sent.BrokeOff(err)
	case isTask(answer.body.object("result")) && !q.p.o.Tasks:
		return reply{}, sent.Doubt(errBecameTask)
	}
	return answer, sent.Answered(status)
}

// mostResumes bounds how often in a row a stream is resumed without news.
const mostResumes = 3

// awaitWrite reads the answer to a write. A server with sessions may end the
// connection before the answer, and expects to be asked for the rest.
func (q *request) awaitWrite(ctx context.Context, resp *http.Response, x *exchange) (reply, error) {
	id := string(encode(x.id))
	for failures, last := 0, ""; ; {
		answer, err := q.await(resp, id, x)
		_ = resp.Body.Close()
		if err == nil || errors.Is(err, errUnreadable) || x.last == "" || q.heads.era() != sessions {
			return answer, err
		}
		if x.last != last {
			failures, last = 0, x.last
		}
		for resp = nil; resp == nil; failures++ {
			if failures == mostResumes {
				return answer, err
			}
			select {
			case <-time.After(x.retry):
			case <-ctx.Done():
				return answer, context.Cause(ctx)
			}
			resp = q.resume(ctx, x)
		}
	}
}

// resume asks for the rest of a write's stream. It returns nil if the upstream
// does not give it.
func (q *request) resume(ctx context.Context, x *exchange) *http.Response {
	h := q.heads
	h.lastEvent = x.last
	resp, err := q.p.reads.RoundTrip(q.p.outgoing(ctx, http.MethodGet, h, message{}))
	if err != nil {
		return nil
	}
	if resp.StatusCode != http.StatusOK || !isType(resp.Header, eventStream) {
		_ = resp.Body.Close()
		return nil
	}
	return resp
}

// isNotification reports whether a method is one of notifications.
func isNotification(method string) bool {
	const prefix = "notifications/"
	return len(method) > len(prefix) && method[:len(prefix)] == prefix
}
