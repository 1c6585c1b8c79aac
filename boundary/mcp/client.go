package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/admission"
)

// This file has what a session does with the messages of the client.

// mostAhead is how many messages of the client are read before those in front
// of them have been passed on.
const mostAhead = 16

// readClient reads the messages of the client until it leaves. It reads ahead,
// so that it also sees the client leave when the upstream does not read.
func (s *session) readClient(l *lines) {
	type frame struct {
		line []byte
		err  error
	}
	ahead, handled := make(chan frame, mostAhead), make(chan struct{})
	go func() {
		defer close(handled)
		for f := range ahead {
			s.handle(f.line, f.err)
		}
	}()
	for {
		line, err := l.next()
		if err != nil && !errors.Is(err, errTooLong) {
			break
		}
		ahead <- frame{line, err}
	}
	close(ahead)
	select {
	case <-handled:
	case <-time.After(lastAnswers):
	}
}

// handle passes a line of the client on, or refuses it. The error says why the
// line could not be read.
func (s *session) handle(line []byte, err error) {
	var m message
	if err == nil {
		m, err = decode(line)
	}
	if err == nil {
		s.fromClient(m)
		return
	}
	if !s.mayAnswer(m) {
		m = message{}
	}
	s.outbox.put(rpcError(m, invalidRequest, "the message is refused, and nothing was sent on: "+err.Error()))
}

// mayAnswer reports whether a message that is refused is a request whose id is
// known, and is not that of another request. A client waits for its answer.
func (s *session) mayAnswer(m message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.isRequest() && s.calls[m.id] == nil
}

// fromClient passes a message of the client on, or refuses it.
func (s *session) fromClient(m message) {
	m = s.cleaned(m)
	switch {
	case m.isRequest():
		s.request(m)
	case m.method == "notifications/cancelled":
		if m, ok := s.cancelled(m); ok {
			_ = s.toUpstream.send(m.body, nil)
		}
	case m.method != "" && !strings.HasPrefix(m.method, "notifications/"):
		s.outbox.put(rpcError(message{}, invalidRequest,
			"a call without an id is refused, because a server may carry it out; nothing was sent on"))
	default:
		_ = s.toUpstream.send(m.body, nil) // an upstream that is gone closes down
	}
}

// request passes a request on, or refuses it.
func (s *session) request(m message) {
	c := &call{message: m.head()}
	tool, kind, fault := s.classify(m)
	if fault != nil && !s.o.RefuseNothing {
		s.outbox.put(fault.answer(m))
		return
	}
	c.write = admission.Write{What: tool, Client: "stdio", Stamp: s.o.Stamp, Stamped: s.noStamp == nil}
	switch {
	case fault != nil:
		s.observe(context.Background(), c.write, fault.refusal())
	case kind == write && s.o.RefuseNothing:
		err := s.target(m, &c.write, s.noStamp)
		s.observe(context.Background(), c.write, err)
		kind = read
	case kind == write:
		c.message = m
		c.answer, c.left, c.writeID = make(chan message, 1), make(chan struct{}), writeIDPrefix+rand.Text()
		c.done = make(chan struct{})
		c.invalid = s.target(m, &c.write, s.noStamp)
	}
	ctx, leave := context.WithCancel(context.Background())
	c.leave = leave
	if why := s.register(c); why != "" {
		leave()
		s.outbox.put(rpcError(m, invalidRequest, why))
		return
	}
	if kind == read {
		leave()
		_ = s.toUpstream.send(m.body, nil)
		return
	}
	go func() {
		defer s.writes.Done()
		defer leave()
		s.write(ctx, c)
	}()
}

// register enters a request into the table. It returns why it may not.
func (s *session) register(c *call) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
		return "the proxy is stopping; nothing was sent on"
	case s.calls[c.id] != nil:
		return "a request with this id is not answered yet; nothing was sent on"
	case len(s.calls) == mostCalls:
		return fmt.Sprintf("%d requests are not answered yet; nothing was sent on", mostCalls)
	}
	s.calls[c.id] = c
	if c.answer != nil {
		s.writes.Add(1)
		s.writeIDs[string(encode(c.writeID))] = c
		if last := s.newest[c.write.Resource]; last != nil {
			c.after = last.done
		}
		s.newest[c.write.Resource] = c
	}
	return ""
}

// passTurn lets the next write to the same resource go to the gate, after all
// that came before this one.
func (s *session) passTurn(c *call) {
	if c.after != nil {
		<-c.after
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest[c.write.Resource] == c {
		delete(s.newest, c.write.Resource)
	}
	close(c.done)
}

// cancelled notes that the client does not want an answer any more. It returns
// what the upstream is to hear, if anything: it has not seen a write that
// waits.
func (s *session) cancelled(m message) (message, bool) {
	value, _ := m.params.get("requestId")
	id, err := idText(value)
	if err != nil {
		return m, true // it cancels nothing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[id]
	switch {
	case c == nil:
		return m, true
	case c.answer == nil:
		delete(s.calls, id)
		return m, true
	case c.gone:
		return m, false
	}
	c.gone = true
	close(c.left)
	c.leave()
	return m.withParams(m.params.with("requestId", c.writeID)), c.sent
}
