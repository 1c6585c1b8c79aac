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
	"github.com/croft-dev/croft/internal/admission"
)

// inMemory is how much of a body is kept in memory. The rest goes to a file.
const inMemory = 64 << 10

// spool is a whole body, received before anything of it is sent on. So a slow
// client keeps no others waiting, and a client that breaks off does not leave
// the service with half a write.
type spool struct {
	io.Reader
	size int64
	file *os.File
}

// kept reads a body, and asks keep for every piece whether there is room for
// it.
type kept struct {
	io.Reader
	keep func(n int64) error
}

// Read reads a piece. A piece for which there is no room is lost.
func (k kept) Read(b []byte) (int, error) {
	n, err := k.Reader.Read(b)
	if n > 0 {
		if full := k.keep(int64(n)); full != nil {
			return 0, full
		}
	}
	return n, err
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
	// The file's name is removed at once, so that nothing stays behind whatever
	// happens. Where the system cannot do that, it is removed at the end.
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

// noRoom returns the refusal of a body that could not be kept. The client has
// done nothing wrong.
func noRoom(err error) error {
	return &admission.Refusal{
		Status: http.StatusServiceUnavailable, Code: "unknown", Retry: time.Second, Err: err,
		Say: fmt.Sprintf("a body of more than %d bytes needs room for a temporary file, and there is none; "+
			"nothing was sent", inMemory),
	}
}

// receiving returns the refusal of a body that could not be received. Nothing
// has been sent.
func receiving(err error) error {
	var long *http.MaxBytesError
	var known *admission.Refusal
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &long):
		return &admission.Refusal{Status: http.StatusRequestEntityTooLarge, Code: "invalid", Err: fmt.Errorf(
			"%w body: it has more than %d bytes, which is all that is let through; nothing was sent",
			fence.ErrInvalid, long.Limit)}
	}
	return &admission.Refusal{
		Status: http.StatusBadRequest, Code: "invalid", Say: "the body broke off; nothing was sent",
		Err: fmt.Errorf("%w body: %w", fence.ErrInvalid, err),
	}
}
