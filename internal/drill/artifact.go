package drill

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// artifact is a file into which a worker writes its results.
type artifact interface {
	Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error)
}

// openArtifact opens the guarded resource, or the plain file if there is no
// fence. guards are the guards that the lease must name.
func openArtifact(ctx context.Context, target, path string) (a artifact, guards []guard.Guard, err error) {
	if target == "" {
		return plain(path), nil, nil
	}
	g, err := guard.Open(ctx, target)
	if err != nil {
		return nil, nil, err
	}
	content, ok := g.(guard.Artifact)
	if !ok {
		_ = g.Close()
		return nil, nil, fmt.Errorf("%w target %s: it has no content that could be replaced",
			fence.ErrInvalid, g.Target())
	}
	return content, []guard.Guard{g}, nil
}

// plain is the path of a file without a guard. It is replaced in one step, as
// careful programs do, but by any writer.
type plain string

// Write replaces the file. It ignores the stamp.
func (p plain) Write(_ context.Context, _ fence.Stamp, r io.Reader) (guard.Receipt, error) {
	temp, err := os.CreateTemp(filepath.Dir(string(p)), ".unguarded-*")
	if err != nil {
		return guard.Receipt{}, err
	}
	defer os.Remove(temp.Name())
	n, err := io.Copy(temp, r)
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temp.Name(), string(p))
	}
	return guard.Receipt{Bytes: n}, err
}

// halting is a reader that yields a result in two halves. The second comes only
// when it is allowed. So the director can stop a worker in the middle of a
// write.
type halting struct {
	first, rest string
	reached     chan struct{} // closed when the first half has been read
	allowed     chan struct{} // closed when the rest may be read
	begun       bool
}

func halve(text string) *halting {
	return &halting{
		first: text[:len(text)/2], rest: text[len(text)/2:],
		reached: make(chan struct{}), allowed: make(chan struct{}),
	}
}

// Read yields the first half, then waits.
func (h *halting) Read(p []byte) (int, error) {
	if h.first != "" {
		n := copy(p, h.first)
		h.first = h.first[n:]
		return n, nil
	}
	if !h.begun {
		h.begun = true
		close(h.reached)
		<-h.allowed
	}
	if h.rest == "" {
		return 0, io.EOF
	}
	n := copy(p, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

// content returns the one line in a file, or "" if the file does not exist.
func content(path string) (string, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return "", nil
	}
	return strings.TrimSuffix(string(text), "\n"), err
}
