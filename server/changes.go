package server

import (
	"cmp"
	"fmt"
	"io"
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
	c.slot() // an open stream costs little, and the look that it waits for may hang
	next, mark, quit, err := s.feed.join(c.Context())
	if err != nil {
		return err
	}
	defer quit()
	c.w.Header().Set("Content-Type", wire.Events)
	if since.IsZero() {
		c.w.WriteHeader(http.StatusOK)
		if !c.part(idEvent(mark)) {
			return nil
		}
	} else if goes, err := s.resume(c, prefix, since, mark); !goes {
		return err
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
			// A stream that takes its time keeps the batch, so it has little.
			_ = c.out.SetWriteDeadline(time.Now().Add(sendWithin))
			if told, ok := s.tell(c, c.w, prefix, b); !ok || told && !c.part(idEvent(b.mark)) {
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

// resume sends the changes that a stream has missed. It reads a listing and
// keeps the changes in memory, so it counts as a listing until the client has
// them all. It reports whether the stream goes on.
func (s *Server) resume(c *call, prefix string, since, now time.Time) (goes bool, err error) {
	leave, ok := s.enterList(c.id)
	if !ok {
		return false, busy("listings")
	}
	defer leave()
	late := now.Sub(since) > maxResume
	if late {
		since = now.Add(-maxResume)
	}
	b, err := look(c.Context(), s.st, prefix, since)
	if err != nil {
		return false, err
	}
	b.all = b.all || late
	c.w.WriteHeader(http.StatusOK)
	_, ok = s.tell(c, deadlined{c}, prefix, b)
	return ok && c.part(idEvent(b.mark)), nil
}

// tell sends the changes that this client may hear of to out, one after the
// other. told reports whether there are some, and ok that the client took them.
func (s *Server) tell(c *call, out io.Writer, prefix string, b news) (told, ok bool) {
	send := func(text string) bool {
		told = true
		_, err := io.WriteString(out, text)
		return err == nil
	}
	missed := b.all
	for key := range b.missed {
		missed = missed || strings.HasPrefix(key, prefix) && s.may(c.id, Read, key)
	}
	if missed && !send("event: "+wire.Missed+"\ndata: {}\n\n") {
		return told, false
	}
	for i, change := range b.changes {
		if strings.HasPrefix(change.Key, prefix) && s.may(c.id, Read, change.Key) && !send(b.text(i)) {
			return told, false
		}
	}
	return told, true
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
