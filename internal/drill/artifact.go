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

// artifact is where a worker puts its results.
type artifact interface {
	Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error)
}

// openArtifact opens the guarded resource, or the plain file when there is to be no fence. guards is what the lease is to name.
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
		return nil, nil, fmt.Errorf("%w target %s: it has no content that could be replaced", fence.ErrInvalid, g.Target())
	}
	return content, []guard.Guard{g}, nil
}

// plain is the path of a file that is replaced the way careful programs do it, in one step, and asks nobody whose turn it is.
type plain string

// Write replaces the file. The stamp is not looked at.
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

// halting is a result that comes in two halves, the second only when it is allowed to: a write in which a worker can be stopped.
type halting struct {
	first, rest string
	reached     chan struct{} // closed when the first half has been taken
	allowed     chan struct{} // closed when the rest may come
	begun       bool
}

func halve(text string) *halting {
	return &halting{first: text[:len(text)/2], rest: text[len(text)/2:], reached: make(chan struct{}), allowed: make(chan struct{})}
}

// Read gives the first half, then waits.
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

// content is what readers find in a file: one line, or nothing.
func content(path string) (string, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return "", nil
	}
	return strings.TrimSuffix(string(text), "\n"), err
}
