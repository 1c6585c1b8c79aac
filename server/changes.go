package server

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/wire"
)

// events answers GET /v1/events?prefix=: transfers, ends of terms and refusals,
// as they happen. A client that comes back with the Last-Event-ID that it got
// last misses nothing that the records remember. It may get some changes again.
func (s *Server) events(c *call) error {
	prefix, err := c.prefix()
	if err != nil {
		return err
	}
	since, err := c.lastEvent()
	if err != nil {
		return err
	}
	leave, ok := s.enterStream(c.id)
	if !ok {
		return busy("streams")
	}
	defer leave()
	next, mark, quit, err := s.feed.join(c.Context())
	if err != nil {
		return err
	}
	defer quit()
	var begun news
	if !since.IsZero() {
		if begun, err = s.backlog(c, prefix, since, mark); err != nil {
			return err
		}
		mark = begun.mark
	}
	c.slot() // an open stream costs little
	c.w.Header().Set("Content-Type", wire.Events)
	c.w.WriteHeader(http.StatusOK)
	if !c.part(s.told(c, prefix, begun) + idEvent(mark)) {
		return nil
	}
	beat := time.NewTicker(s.o.Heartbeat)
	defer beat.Stop()
	for {
		some, more, mark, woken, behind := s.feed.after(next)
		if behind {
			return nil // the client comes back, and resumes
		}
		next = more
		for _, b := range some {
			if text := s.told(c, prefix, b); text != "" && !c.part(text+idEvent(b.mark)) {
				return nil
			}
		}
		select {
		case <-woken:
		case <-beat.C:
			if !c.part(idEvent(mark)) {
				return nil
			}
		case <-c.Context().Done():
			return nil
		case <-s.life.Done():
			return nil
		}
	}
}

// backlog looks for what a stream has missed. It costs a listing.
func (s *Server) backlog(c *call, prefix string, since, now time.Time) (news, error) {
	if !s.lists.enter() {
		return news{}, busy("listings")
	}
	defer s.lists.leave()
	late := now.Sub(since) > maxResume
	if late {
		since = now.Add(-maxResume)
	}
	b, err := look(c.Context(), s.st, prefix, since)
	b.all = b.all || late
	return b, err
}

// told writes the changes that this client may hear of.
func (s *Server) told(c *call, prefix string, b news) string {
	var text strings.Builder
	missed := b.all
	for key := range b.missed {
		missed = missed || strings.HasPrefix(key, prefix) && s.may(c.id, Read, key)
	}
	if missed {
		fmt.Fprintf(&text, "event: %s\ndata: {}\n\n", wire.Missed)
	}
	for _, change := range b.changes {
		if strings.HasPrefix(change.Key, prefix) && s.may(c.id, Read, change.Key) {
			fmt.Fprintf(&text, "event: %s\ndata: %s\n\n", change.Kind, change.Bytes())
		}
	}
	return text.String()
}

// idEvent tells a client from where to resume. It comes after the changes that
// it covers, because a stream may break between them. Without data it is no
// event for the client's own code.
func idEvent(mark time.Time) string { return fmt.Sprintf("id: %d\n\n", mark.UnixMicro()) }

// lastEvent returns the time from which a stream is resumed, or zero.
func (c *call) lastEvent() (time.Time, error) {
	id := c.Header.Get("Last-Event-ID")
	if id == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err = cmp.Or(err, checkMoment(n)); err != nil {
		return time.Time{}, refuse(wire.NewProblem(wire.Invalid, "Last-Event-ID: it is none that this server has sent"))
	}
	return time.UnixMicro(n), nil
}

// checkMoment refuses a time in microseconds that no store's clock shows.
func checkMoment(n int64) error {
	if n <= 0 || n >= 1<<53 {
		return strconv.ErrRange
	}
	return nil
}
