package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
)

// watch answers GET /v1/watch?key=: an event soon after each change of the key.
// The answer begins when the watch has begun, so a client that asks after that
// misses nothing.
func (s *Server) watch(c *call) error {
	if err := onlyQuery(c, "key"); err != nil {
		return err
	}
	key := c.URL.Query().Get("key")
	if err := fence.CheckKey(key); err != nil {
		return err
	}
	if !s.may(c.id, Read, key) {
		return refuse(unseen())
	}
	w, ok := s.st.(store.Watcher)
	if !ok {
		return errors.ErrUnsupported
	}
	defer s.waiters.enter(key)()
	open := func(ctx context.Context) (<-chan struct{}, error) { return w.Watch(ctx, key) }
	return stream(s, c, open, "changed", func(struct{}) string { return key })
}

// acts answers GET /v1/acts: an event for each act of an operator.
func (s *Server) acts(c *call) error {
	if err := onlyQuery(c, ""); err != nil {
		return err
	}
	a, ok := s.st.(store.Announcer)
	if !ok {
		return errors.ErrUnsupported
	}
	return stream(s, c, a.Acts, "act", func(key string) string {
		if !s.may(c.id, Read, key) {
			return ""
		}
		return key
	})
}

// stream sends events until the client, the hints or the server end. A client
// that does not read is dropped: its events are only hints. keyOf returns the
// key to tell, or "" if the client may not hear of it.
func stream[T any](
	s *Server, c *call, open func(context.Context) (<-chan T, error), event string, keyOf func(T) string,
) error {
	leave, ok := s.enterStream(c.id)
	if !ok {
		return busy("streams")
	}
	defer leave()
	ctx, cancel := c.lasting()
	defer cancel()
	hints, err := open(ctx)
	if err != nil {
		return err
	}
	c.slot() // an open stream costs little
	c.w.Header().Set("Content-Type", wire.Events)
	c.w.WriteHeader(http.StatusOK)
	if !c.part(":\n\n") {
		return nil
	}
	beat := time.NewTicker(s.o.Heartbeat)
	defer beat.Stop()
	for {
		said := ":\n\n" // a comment, by which a dead peer is found
		select {
		case hint, open := <-hints:
			if !open {
				return nil
			}
			key := keyOf(hint)
			if key == "" {
				continue
			}
			said = fmt.Sprintf("event: %s\ndata: %s\n\n", event, wire.KeyEvent(key))
		case <-beat.C:
		case <-ctx.Done():
			return nil
		case <-s.life.Done():
			return nil
		}
		if !c.part(said) {
			return nil
		}
	}
}

// part sends a part of a stream. It reports false if the client has gone or
// does not read.
func (c *call) part(text string) bool {
	_ = c.out.SetWriteDeadline(time.Now().Add(sendWithin))
	_, err := c.w.Write([]byte(text))
	return err == nil && c.out.Flush() == nil
}
