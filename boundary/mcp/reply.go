package mcp

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/guard/gate"
)

// This file has how a proxy over HTTP reads the answers of the upstream, and
// how it passes them on.

// reply is the last message of an answer.
type reply struct {
	status  int // of an answer that is no stream
	body    object
	event   event  // of a stream
	session string // begins with this answer, or ""
	retry   string // seconds until the client should try again, or ""
}

// shownBy returns the reply as the client sees it.
func (a reply) shownBy(c *core, method string) reply {
	a.body = c.shown(method, message{body: a.body}).body
	return a
}

// errUnreadable is matched by the error of an answer that is here to its end,
// and is none.
var errUnreadable = errors.New("the upstream's answer is none")

// errNoRoom is the error for the answer to a read that takes too much memory,
// together with what else the client keeps the proxy busy with. The answer to a
// write is read in any case: it tells that the write has ended.
var errNoRoom = errors.New("the proxy has no room for the answer")

// readText reads the body of an answer that is no stream.
func readText(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, MaxFrame+1))
	if err == nil && len(text) > MaxFrame {
		err = fmt.Errorf("%w: it is longer than 16 MiB", errUnreadable)
	}
	return text, err
}

// counted is the body of the answer to a read. It counts against the client.
type counted struct {
	io.Reader
	q *request
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if c.q.keep(int64(n)) != nil {
		return 0, errNoRoom
	}
	return n, err
}

// newEvents reads a stream of the upstream. Unless it belongs to a write, its
// events count against the client.
func (q *request) newEvents(resp *http.Response, x *exchange) *events {
	stream := newEvents(resp.Body)
	if x == nil {
		stream.keep, stream.drop = q.keep, q.at.Drop
	}
	return stream
}

// await reads the upstream's answer to a request up to its last message. It
// passes on what comes before. The exchange is nil for a read. The upstream
// knows the request by the given id.
func (q *request) await(resp *http.Response, id string, x *exchange) (reply, error) {
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return reply{}, fmt.Errorf("%w: it is compressed, unasked", errUnreadable)
	}
	switch {
	case resp.StatusCode == http.StatusOK:
	case resp.StatusCode/100 == 2:
		return reply{}, fmt.Errorf("%w: it is %d, without a result", errUnreadable, resp.StatusCode)
	default:
		return q.p.newStatusReply(resp, q.m), nil
	}
	session, err := q.newSession(resp)
	if err != nil {
		return reply{}, err
	}
	if !isType(resp.Header, eventStream) {
		if !isType(resp.Header, "application/json") {
			return reply{}, fmt.Errorf("%w: its type is neither JSON nor a stream of events", errUnreadable)
		}
		body := io.Reader(resp.Body)
		if x == nil {
			body = counted{body, q}
		}
		text, err := readText(body)
		if err != nil {
			return reply{}, err
		}
		if x == nil && q.keep(int64(countValues(text))*bytesOfValue) != nil {
			return reply{}, errNoRoom
		}
		m, err := decode(text)
		why := anonymousError(text)
		switch {
		case why != nil:
			m.body = (&fault{}).answer(q.m).with("error", why)
		case err != nil && !errors.Is(err, errHalfPair):
			return reply{}, fmt.Errorf("%w: %w", errUnreadable, err)
		case m.method != "" || m.id != id:
			return reply{}, fmt.Errorf("%w: it answers to another request", errUnreadable)
		}
		return reply{status: http.StatusOK, body: q.answered(m), session: session}, nil
	}
	q.w.Header().Set(sessionHeader, session)
	q.stream(resp)
	stream := q.newEvents(resp, x)
	for x != nil || !q.gone {
		e, m, err := q.p.nextMessage(stream)
		if err != nil {
			return reply{}, err
		}
		x.saw(e)
		switch {
		case m.body == nil || m.method != "":
			q.send(e, m.body)
		case m.id == id:
			return reply{status: http.StatusOK, body: q.answered(m), event: e}, nil
		default:
			q.p.o.Dropped(errors.New("a message of the upstream is dropped: it answers to another request"))
		}
	}
	return reply{}, errors.New("the client has gone")
}

// answered returns the upstream's answer under the id that the client knows.
func (q *request) answered(m message) object {
	id, _ := q.m.body.get("id")
	return q.p.received(m).body.with("id", id)
}

// newSession returns the session that begins with an answer, or "".
func (q *request) newSession(resp *http.Response) (string, error) {
	values := resp.Header.Values(sessionHeader)
	if len(values) == 0 || q.heads.era() != sessions {
		return "", nil
	}
	if len(values) > 1 || !isPlain(values[0], mostID) || strings.Contains(values[0], " ") ||
		values[0] != q.p.o.Credential.hide(values[0]) {
		return "", fmt.Errorf("%w: the id of its session is none, or is there twice", errUnreadable)
	}
	return values[0], nil
}

// nextMessage reads the next event of a stream that is passed on, with its
// message. It drops messages that cannot be read.
func (p *Proxy) nextMessage(stream *events) (event, message, error) {
	for {
		e, err := stream.next()
		if err != nil && !errors.Is(err, errLongEvent) {
			return e, message{}, err
		}
		var m message
		if err == nil && e.isMessage() {
			if err := stream.count(countValues(e.data) * bytesOfValue); err != nil {
				return e, message{}, err
			}
			m, err = decode(e.data)
		}
		if errors.Is(err, errHalfPair) { // servers cut texts in the middle of an emoji
			err = nil
		}
		if err != nil {
			p.o.Dropped(fmt.Errorf("a message of the upstream is refused: %w", err))
			continue
		}
		if m.method == "notifications/tools/list_changed" {
			p.hints.forget()
		}
		if m.body != nil {
			m = p.received(m)
		}
		if e.id != p.o.Credential.hide(e.id) {
			e.id = ""
		}
		return e, m, nil
	}
}

// mostWhy bounds an answer that says why there is none. The client does not get
// a longer one.
const mostWhy = 1 << 20

// newStatusReply returns an answer that says by its status that there is none,
// as the client sees it. The message is zero if there was none.
func (c *core) newStatusReply(resp *http.Response, to message) reply {
	a := reply{status: resp.StatusCode}
	if after := resp.Header.Get("Retry-After"); len(after) < 7 && strings.Trim(after, "0123456789") == "" {
		a.retry = after
	}
	f := &fault{code: internalError, say: fmt.Sprintf("the server behind the proxy answered %d", resp.StatusCode)}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		// A client that knew would look for credentials, which the proxy does
		// not pass on.
		a.status = http.StatusBadGateway
		f.say = fmt.Sprintf("the server behind the proxy does not accept the proxy's credential (%d)", resp.StatusCode)
	default:
		if resp.StatusCode < 400 {
			a.status = http.StatusBadGateway
		}
		if resp.StatusCode/100 == 3 {
			f.say = fmt.Sprintf("the server behind the proxy is somewhere else (%d), and the proxy follows no redirect",
				resp.StatusCode)
		}
	}
	a.body = f.answer(to)
	if a.status != resp.StatusCode || !isType(resp.Header, "application/json") {
		return a
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostWhy+1))
	if err != nil || len(text) > mostWhy {
		return a
	}
	value, err := parse(text)
	said, _ := value.(object)
	if why := said.object("error"); why != nil && (err == nil || errors.Is(err, errHalfPair)) {
		a.body = a.body.with("error", c.o.Credential.hideIn(why))
	}
	return a
}

// anonymousError returns the error of an answer without an id, or nil. A server
// answers so if it could not read the request.
func anonymousError(text []byte) object {
	value, err := parse(text)
	said, _ := value.(object)
	if id, _ := said.get("id"); id != nil || err != nil && !errors.Is(err, errHalfPair) {
		return nil
	}
	return said.object("error")
}

// stream begins an answer that is a stream of events.
func (q *request) stream(resp *http.Response) {
	if q.streams {
		return
	}
	q.streams = true
	h := q.w.Header()
	if h.Get(sessionHeader) == "" {
		h.Del(sessionHeader)
	}
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	q.w.WriteHeader(resp.StatusCode)
	q.put(nil)
}

// send passes on an event of a stream.
func (q *request) send(e event, value object) {
	if value == nil && !e.comment && e.id == "" && e.retry == "" {
		return // it says nothing
	}
	q.put(encodeEvent(e, value))
}

// put writes to the client, and flushes. A client that does not read has a
// while for each piece. If a write waits for it, it has a while for all pieces
// together, because others wait for the resource.
func (q *request) put(text []byte) {
	if q.gone {
		return
	}
	start := time.Now()
	if q.left > 0 {
		q.w.Stall = q.left
	}
	_, err := q.w.Write(text)
	if err == nil {
		err = q.w.FlushError()
	}
	q.gone = err != nil
	if q.left > 0 {
		q.left -= time.Since(start)
		q.gone = q.gone || q.left <= 0
	}
}

// say gives the last message of an answer.
func (q *request) say(a reply) {
	if q.streams {
		q.send(a.event, a.body)
		return
	}
	h := q.w.Header()
	if a.session != "" {
		h.Set(sessionHeader, a.session)
	}
	if a.retry != "" {
		h.Set("Retry-After", a.retry)
	}
	text := encode(a.body)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	q.w.WriteHeader(a.status)
	q.put(text)
}

// readFailed is the event of a read without an answer.
func readFailed(what string, err error) gate.Event {
	return gate.Event{
		Kind: gate.ReadFailed, Method: what, Status: http.StatusBadGateway, Code: "unknown", Err: err,
	}
}

// writeIDPrefix begins the ids by which the upstream knows writes.
const writeIDPrefix = "croft-"

// withOriginal returns the id by which the upstream knows a write over HTTP. It
// has the client's id in it: a client may get the answer after a break, from a
// stream that another process of the proxy serves.
func withOriginal(random, id string) string {
	return writeIDPrefix + random + "-" + base64.RawURLEncoding.EncodeToString([]byte(id))
}

// restored returns an answer under the id that the client knows.
func restored(m message) (message, error) {
	value, _ := m.body.get("id")
	text, _ := value.(string)
	rest, is := strings.CutPrefix(text, writeIDPrefix)
	if !is {
		return m, nil
	}
	_, encoded, _ := strings.Cut(rest, "-")
	id, err := base64.RawURLEncoding.DecodeString(encoded)
	if err == nil {
		value, err = parse(id)
	}
	if err == nil {
		m.id, err = idText(value)
	}
	if err != nil {
		return m, fmt.Errorf("a message of the upstream is refused: it answers to no call: %w", err)
	}
	m.body = m.body.with("id", value)
	return m, nil
}

// awaitStream waits for a write whose stream a client wants to resume. The
// proxy still reads that stream itself.
func (p *Proxy) awaitStream(ctx context.Context, h heads) {
	p.mu.Lock()
	over := p.streams[h.session+"\x00"+h.lastEvent]
	p.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
}
