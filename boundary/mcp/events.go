package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// event is one event of a stream of server-sent events, or a comment that keeps
// the stream alive.
type event struct {
	comment bool
	name    string
	id      string // "" if it has none, or none that could be sent back
	retry   string // in milliseconds, or ""
	data    []byte
}

// isMessage reports whether an event has a message. The first event of a stream
// may have only an id.
func (e event) isMessage() bool { return len(e.data) > 0 && (e.name == "" || e.name == "message") }

// events reads the events of a stream.
type events struct {
	r     *bufio.Reader
	most  int // bytes of an event
	begun bool
	cr    bool // the last line ended with a carriage return

	// keep and drop, if set, count the memory of the event that was read last.
	keep func(n int64) error
	drop func(n int64)
	kept int64
}

func newEvents(r io.Reader) *events {
	return &events{r: bufio.NewReaderSize(r, 32<<10), most: MaxFrame + 64}
}

// errLongEvent is the error for an event that is longer than MaxFrame. It has
// been skipped.
var errLongEvent = errors.New("an event is longer than 16 MiB")

// next returns the next event. An event that has not ended with the stream is
// none.
func (s *events) next() (event, error) {
	if s.kept > 0 {
		s.drop(s.kept)
		s.kept = 0
	}
	var e event
	var fields, data, long bool
	for {
		line, err := s.line(s.most - len(e.data))
		switch {
		case errors.Is(err, errTooLong):
			long, fields, e.data = true, true, nil
			continue
		case err != nil:
			return event{}, err
		case line == "" && long:
			return e, errLongEvent
		case line == "" && fields:
			return e, nil
		case line == "":
			continue
		case line[0] == ':' && !fields:
			return event{comment: true}, nil
		}
		fields = true
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			e.name = value
		case "id":
			e.id = ""
			if isPlain(value, mostID) {
				e.id = value
			}
		case "retry":
			if len(value) < 10 && strings.Trim(value, "0123456789") == "" {
				e.retry = value
			}
		case "data":
			if data {
				e.data = append(e.data, '\n')
			}
			data, e.data = true, append(e.data, value...)
		}
	}
}

// count counts memory of the present event.
func (s *events) count(n int) error {
	if s.keep == nil {
		return nil
	}
	if s.keep(int64(n)) != nil {
		return errNoRoom
	}
	s.kept += int64(n)
	return nil
}

// line returns the next line without its end, which is a newline, a carriage
// return, or both. It returns at most that many bytes, and errTooLong if there
// were more.
func (s *events) line(most int) (string, error) {
	var line []byte
	long := false
	for {
		if _, err := s.r.Peek(1); err != nil { // waits for more
			return "", err
		}
		piece, _ := s.r.Peek(s.r.Buffered()) // cannot fail
		if s.cr && piece[0] == '\n' {        // the second half of the last line's end
			s.cr = false
			_, _ = s.r.Discard(1)
			continue
		}
		s.cr = false
		end := bytes.IndexAny(piece, "\r\n")
		if end >= 0 {
			s.cr = piece[end] == '\r'
			piece = piece[:end]
		}
		if long = long || len(line)+len(piece) > most; long {
			line = nil
		} else if err := s.count(len(piece)); err != nil {
			return "", err
		} else {
			line = append(line, piece...)
		}
		if _, _ = s.r.Discard(len(piece)); end < 0 {
			continue
		}
		_, _ = s.r.Discard(1)
		if !s.begun {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
			s.begun = true
		}
		if long {
			return "", errTooLong
		}
		return string(line), nil
	}
}

// encodeEvent writes an event, with a message or without.
func encodeEvent(e event, value object) []byte {
	var b bytes.Buffer
	if e.comment {
		return []byte(":\n\n")
	}
	if e.id != "" {
		b.WriteString("id: " + e.id + "\n")
	}
	if e.retry != "" {
		b.WriteString("retry: " + e.retry + "\n")
	}
	if value != nil {
		b.WriteString("event: message\ndata: ")
		b.Write(encode(value))
	} else {
		b.WriteString("data:")
	}
	b.WriteString("\n\n")
	return b.Bytes()
}
