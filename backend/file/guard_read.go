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
	c, err := v.chain()
	if err != nil {
		return nil, err
	}
	if c != nil {
		content, err := c.content(ctx)
		if content != nil || err != nil {
			c.repair(ctx)
			return content, err
		}
	}
	return v.openPlain(ctx)
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
	body := struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(file, 0, info.Size()), file}
	return &guard.Content{ReadCloser: body, Mark: s.mark, Size: info.Size()}, nil
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
