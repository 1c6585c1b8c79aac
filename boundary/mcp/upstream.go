package mcp

import (
	"errors"
	"fmt"
)

// This file has what a session does with the messages of the upstream.

// readUpstream reads the messages of the upstream until it is gone.
func (s *session) readUpstream(l *lines) {
	for {
		line, err := l.next()
		if err != nil && !errors.Is(err, errTooLong) {
			return
		}
		var m message
		if err == nil {
			m, err = decode(line)
		}
		if errors.Is(err, errHalfPair) { // servers cut texts in the middle of an emoji
			err = nil
		}
		if err != nil {
			s.o.Dropped(fmt.Errorf("a message of the upstream is refused: %w", err))
			continue
		}
		s.fromUpstream(m)
	}
}

// asked returns the request to which the upstream answers under that id, or
// nil. No second answer belongs to it. A write is in the table of calls until
// its resource is free.
func (s *session) asked(id string) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.writeIDs[id]; c != nil && c.sent {
		delete(s.writeIDs, id)
		return c
	}
	c := s.calls[id]
	if c == nil || c.answer != nil { // the upstream knows a write by another id
		return nil
	}
	delete(s.calls, id)
	return c
}

// fromUpstream passes a message of the upstream on. An answer to nothing is
// dropped.
func (s *session) fromUpstream(m message) {
	m = s.received(m)
	if m.method != "" {
		if m.method == "notifications/tools/list_changed" {
			s.hints.forget()
		}
		s.outbox.put(m.body)
		return
	}
	c := s.asked(m.id)
	switch {
	case c == nil:
	case c.answer != nil:
		id, _ := c.body.get("id")
		m.id, m.body = c.id, m.body.with("id", id)
		c.answer <- m
	default:
		s.outbox.put(s.shown(c.method, m).body)
	}
}
