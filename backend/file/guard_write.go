package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// Write replaces the file's content with everything that r yields, if the stamp
// is still admitted once all of it has been read. It refuses a stamp at once,
// without reading, if the stamp is refused already when Write begins. When ctx
// ends while r blocks, Write returns; r is left to a last Read, whose bytes are
// lost.
//
// A file that did not exist gets the permissions of a file that a shell's
// redirection makes.
func (f *File) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if err := f.options.Keys.CheckNow(stamp); err != nil {
		return guard.Receipt{}, err
	}
	v, err := f.visit()
	if err != nil {
		return guard.Receipt{}, err
	}
	defer v.leave()
	c, err := v.chainFor(ctx)
	switch {
	case err != nil:
		return guard.Receipt{}, err
	case c != nil:
		return c.write(ctx, stamp, r)
	}
	return v.write(ctx, stamp, r)
}

// replaceable looks at the artifact and says why it cannot be replaced.
func (v *visit) replaceable() (fs.FileInfo, error) {
	old, err := v.inspect()
	if err != nil || old == nil {
		return nil, err
	}
	if err := v.fs.Writable(v.path); err != nil && !vanished(err) {
		return nil, fmt.Errorf("guard %s: %w; it is write-protected, and replacing it would get around that: "+
			"give it write permission first", v.path, err)
	}
	return old, nil
}

func (v *visit) write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	old, err := v.replaceable()
	if err != nil {
		return guard.Receipt{}, err
	}
	now, err := v.look(ctx)
	if err != nil {
		return guard.Receipt{}, err
	}
	if _, err := now.mark.Admit(stamp); err != nil {
		return guard.Receipt{}, err
	}
	v.sweep(time.Now())

	s, err := v.stage(old)
	if err != nil {
		return guard.Receipt{}, err
	}
	n, err := guardCopy(ctx, s.file, r)
	if err != nil {
		return guard.Receipt{}, s.drop(v.failed("staging the new content", err))
	}
	if err := s.sync(); err != nil {
		return guard.Receipt{}, s.drop(err)
	}
	receipt, err := v.commit(ctx, stamp, s)
	if err != nil {
		return guard.Receipt{}, s.drop(err)
	}
	receipt.Bytes = n
	return receipt, s.drop(nil)
}

// commit is the one step of a write. Under the lock it checks the stamp,
// advances the mark and swaps the content.
func (v *visit) commit(ctx context.Context, stamp fence.Stamp, s *guardStage) (guard.Receipt, error) {
	in, err := v.enter(ctx)
	if err != nil {
		return guard.Receipt{}, err
	}
	defer in.leave()
	next := in.state
	if next.mark, err = in.state.mark.Admit(stamp); err != nil {
		return guard.Receipt{}, err
	}
	old, err := v.inspect()
	if err != nil {
		return guard.Receipt{}, err
	}
	if err := s.refreshPermissions(old); err != nil {
		return guard.Receipt{}, err
	}
	if err := ctx.Err(); err != nil {
		return guard.Receipt{}, fmt.Errorf("guard %s: %w", v.path, err)
	}
	receipt := guard.Receipt{Mark: next.mark, Adopted: old != nil && next.writes == 0}

	// From here on there is no way back. The mark goes first. A crash between
	// the two then refuses older owners, under old content, which is safe. The
	// other way round, it would admit older owners over new content.
	next.writes++
	if err := in.advance(next); err != nil {
		return guard.Receipt{}, fmt.Errorf("%w; the content is unchanged, the mark may stand at token %d already",
			err, stamp.Token)
	}
	if err := s.install(); err != nil {
		return guard.Receipt{}, fmt.Errorf("guard %s: putting the new content in place: %w; "+
			"the content is unchanged, the mark stands at token %d: "+
			"write again, with the next number if your writes are numbered", v.path, err, stamp.Token)
	}
	if err := v.fs.SyncDir(v.folder); err != nil {
		return guard.Receipt{}, fmt.Errorf("guard %s: the new content is in place, "+
			"but may not survive a power cut: syncing its directory: %w", v.path, err)
	}
	return receipt, in.recheck()
}

// guardChunk is the size of the buffers for reading content.
const guardChunk = 256 << 10

// guardCopy copies everything that r yields to w. A goroutine of its own does
// the reading, so that a Read which hangs does not keep guardCopy from ending
// with ctx. Two buffers go back and forth between them. The goroutine ends when
// r ends, or after its next Read once guardCopy has returned.
func guardCopy(ctx context.Context, w io.Writer, r io.Reader) (int64, error) {
	full, empty, over := make(chan guardPiece), make(chan []byte, 2), make(chan struct{})
	defer close(over)
	empty <- make([]byte, guardChunk)
	empty <- make([]byte, guardChunk)
	go guardRead(r, full, empty, over)
	var total int64
	for {
		var p guardPiece
		var ok bool
		select {
		case p, ok = <-full:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil {
			return total, fmt.Errorf("while it was read: %w", err)
		}
		if !ok {
			return total, errors.New("its reader ended with neither an end of file nor an error")
		}
		if len(p.data) > 0 {
			n, err := w.Write(p.data)
			total += int64(n)
			if err != nil {
				return total, err
			}
		}
		switch {
		case p.err == io.EOF: //nolint:errorlint // only io.EOF itself is the end; a wrapped one is an error
			return total, nil
		case p.err != nil:
			return total, fmt.Errorf("reading it: %w", p.err)
		}
		empty <- p.data[:cap(p.data)]
	}
}

// guardPiece is the result of one Read.
type guardPiece struct {
	data []byte
	err  error
}

// guardRead reads into empty buffers and sends them on full. It ends when r
// ends, or when over is closed.
func guardRead(r io.Reader, full chan<- guardPiece, empty <-chan []byte, over <-chan struct{}) {
	defer close(full) // also if r calls runtime.Goexit
	for {
		var buf []byte
		select {
		case buf = <-empty:
		case <-over:
			return
		}
		n, err := r.Read(buf)
		select {
		case full <- guardPiece{buf[:n], err}:
		case <-over:
			return
		}
		if err != nil {
			return
		}
	}
}
