package httpfence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/croft-dev/croft/fence"
)

// inMemory is how much of a body is kept in memory; what is larger goes to a file.
const inMemory = 1 << 20

// spool is a whole body, received before anything of it is sent on: a client that is slow, or breaks off, then neither keeps others waiting nor leaves the service
// with half a write.
type spool struct {
	io.Reader
	size int64
	file *os.File
}

// receive reads a body to its end.
func receive(body io.Reader) (*spool, error) {
	var head bytes.Buffer
	n, err := io.Copy(&head, io.LimitReader(body, inMemory))
	if err != nil {
		return nil, receiving(err)
	}
	s := &spool{Reader: &head, size: n}
	if n < inMemory {
		return s, nil
	}
	// The name goes at once, so that nothing stays behind whatever happens; where that cannot be, it goes at the end.
	if s.file, err = os.CreateTemp("", "croft-proxy-*"); err != nil {
		return nil, noRoom(err)
	}
	_ = os.Remove(s.file.Name())
	more, err := io.Copy(s.file, body)
	if err == nil {
		_, err = s.file.Seek(0, io.SeekStart)
	}
	var local *fs.PathError
	switch {
	case errors.As(err, &local):
		s.close()
		return nil, noRoom(err)
	case err != nil:
		s.close()
		return nil, receiving(err)
	}
	s.size += more
	s.Reader = io.MultiReader(&head, s.file)
	return s, nil
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}

// noRoom explains that a body could not be kept. That is no fault of the client's.
func noRoom(err error) error {
	return &refusal{status: http.StatusServiceUnavailable, code: "unknown", retry: time.Second, err: fmt.Errorf(
		"a body of more than %d bytes needs room for a temporary file; nothing was sent: %w", inMemory, err)}
}

// receiving explains why a body could not be received. Nothing has been sent.
func receiving(err error) error {
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		return &refusal{status: http.StatusRequestEntityTooLarge, code: "invalid", err: fmt.Errorf("%w body: it has more than %d bytes, which is all that is let through; nothing was sent", fence.ErrInvalid, long.Limit)}
	}
	return &refusal{status: http.StatusBadRequest, code: "invalid", err: fmt.Errorf("%w body: it broke off; nothing was sent: %w", fence.ErrInvalid, err)}
}
