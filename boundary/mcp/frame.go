package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

// MaxFrame bounds one message, in bytes.
const MaxFrame = 16 << 20

// errTooLong is the error for a line that is longer than MaxFrame. The line has
// been skipped.
var errTooLong = errors.New("it is longer than 16 MiB")

// lines reads messages, each on a line of its own.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line that is not empty. What follows the last newline
// is no message: its writer may have died in the middle of it.
func (l *lines) next() ([]byte, error) {
	var line []byte
	long := false
	for {
		piece, err := l.r.ReadSlice('\n')
		if long = long || len(line)+len(piece) > MaxFrame+1; !long {
			line = append(line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, err
		case long:
			return nil, errTooLong
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
		line = line[:0]
	}
}

// sender writes messages, each on a line of its own.
type sender struct {
	mu sync.Mutex
	w  io.Writer
}

// send writes a value as one message. It re-encodes it: no byte of the other
// side passes through. If check is set, it is asked just before, and its error
// says that nothing was written.
func (s *sender) send(value any, check func() error) error {
	line := append(encode(value), '\n')
	s.mu.Lock()
	defer s.mu.Unlock()
	if check != nil {
		if err := check(); err != nil {
			return &notSentError{err}
		}
	}
	_, err := s.w.Write(line)
	return err
}

// notSentError is the error of a message of which nothing was written.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }
