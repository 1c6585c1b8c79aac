package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/croft-dev/croft/guard"
)

var (
	_ guard.Reader  = (*File)(nil)
	_ guard.Sweeper = (*File)(nil)
)

// Open opens the committed content. On a local disk it is the file itself. On a
// network mount the file is a copy, and Open gives the original.
func (f *File) Open(ctx context.Context) (*guard.Content, error) {
	v, err := f.visit()
	if err != nil {
		return nil, err
	}
	defer v.leave()
	content, err := v.openCommitted(ctx)
	if content != nil || err != nil {
		return content, err
	}
	plain, err := v.openPlain(ctx)
	if err != nil {
		return nil, err
	}
	// The first write over a network may have come after the first look. Then
	// the file is a copy, and may change while it is read.
	content, err = v.openCommitted(ctx)
	if content == nil && err == nil {
		return plain, nil
	}
	_ = plain.Close()
	return content, err
}

// openCommitted opens the content that the chain of versions names. It returns
// nil if there is no chain, or none of its versions has content.
func (v *visit) openCommitted(ctx context.Context) (*guard.Content, error) {
	c, err := v.chain()
	if c == nil || err != nil {
		return nil, err
	}
	content, err := c.content(ctx)
	if content != nil || err != nil {
		c.repair(ctx)
	}
	return content, err
}

// openPlain opens the artifact itself. The mark is never behind the content.
func (v *visit) openPlain(ctx context.Context) (*guard.Content, error) {
	if _, err := v.inspect(); err != nil {
		return nil, err
	}
	file, err := v.fs.Open(v.path, os.O_RDONLY, 0)
	if err != nil {
		return nil, v.failed("reading it", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("guard %s: it is no regular file", v.path)
	}
	var s slotState
	if err == nil {
		s, err = v.look(ctx)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	body := &whole{io.NewSectionReader(file, 0, info.Size()), file, info.Size(), v.path}
	return &guard.Content{ReadCloser: body, Mark: s.mark, Size: info.Size()}, nil
}

// whole reads a file that must not end early. Over a network mount it does when
// a shorter file takes its place.
type whole struct {
	io.Reader
	io.Closer
	left int64
	path string
}

func (r *whole) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.left -= int64(n)
	if errors.Is(err, io.EOF) && r.left > 0 {
		return n, fmt.Errorf("guard %s: %w: it was replaced while it was read; read it again",
			r.path, io.ErrUnexpectedEOF)
	}
	return n, err
}

// Sweep removes the files that dead writes have left behind.
func (f *File) Sweep(ctx context.Context) (removed int, err error) {
	v, err := f.visit()
	if err != nil {
		return 0, err
	}
	defer v.leave()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	removed = v.sweepBeside()
	c, err := v.chain()
	if err != nil || c == nil {
		return removed, err
	}
	more, err := c.sweep(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return removed + more, err
}
