// Package guard is the contract of a guarded resource: a place that decides by itself whose writes still count.
//
// Every guard keeps a [fence.Mark] and decides by [fence.Mark.Admit]. The check and the write are one atomic step in the resource. How a write looks depends on
// the place (a file is replaced, a row is updated in the caller's own transaction), so only what all guards share is here; package guard/guardtest
// is the suite every guard passes.
package guard

import (
	"context"
	"errors"
	"io"

	"github.com/croft-dev/croft/fence"
)

// Guard is a resource whose mark can be read and moved. All methods are safe for concurrent use, also from several processes.
type Guard interface {
	// Target names the resource as a user would: a path or a URL, without passwords.
	Target() string
	// Mark is the newest stamp admitted; the zero Mark if there is none.
	Mark(ctx context.Context) (fence.Mark, error)
	// Raise advances the mark to the stamp without writing, so that every older owner is shut out from now on. It returns the mark that then
	// stands, and a refusal of fence.Mark.Admit if the stamp is not admitted. Raising twice is the same as once.
	Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error)
	// Rekey moves the resource to another key, by an operator and for a stated reason, both of which it keeps.
	Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error)
	// Reset takes back a mark whose token was made up, by [fence.Mark.Reset]: by
	// an operator and for a stated reason, which it keeps as Rekey does. The
	// floor is the highest token that the store has given out for the key.
	Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error)
	// Close lets go of what the guard holds open.
	Close() error
}

// Artifact is a guarded resource whose whole content is replaced by each write.
type Artifact interface {
	Guard
	// Write replaces the content with what r yields, if the stamp is admitted when all of it has been read. Readers see the old
	// content or the new, never a part. A refusal, an error and a broken r change nothing.
	Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (Receipt, error)
}

// Receipt tells what a write did.
type Receipt struct {
	Mark  fence.Mark
	Bytes int64
	// Adopted is set when the write was the first guarded one of content that already existed.
	Adopted bool
}

// Sweeper is a guard in a place where a write that died can leave something behind: an unfinished upload, content that nothing names. Guards sweep by themselves now and then; Sweep
// does it now, and takes nothing that a living write may still need.
type Sweeper interface {
	Sweep(ctx context.Context) (removed int, err error)
}

// ErrBusy is matched when a guard could not be entered in time because another process is inside; nothing was changed. Try again, and look at
// the process the error names if it does not go away.
var ErrBusy = errors.New("the guard is busy")

// Reader is a guard that can tell the committed content. Where a plain file or
// object is only a copy of it, the copy may be older for a moment.
type Reader interface {
	// Open opens the content of the newest admitted write. Content that was
	// there before the first one is given as it is. The error matches
	// fs.ErrNotExist if there is no content.
	Open(ctx context.Context) (*Content, error)
}

// Content is the committed content at one moment. If it is not what was
// committed, its last Read returns an error instead of io.EOF.
type Content struct {
	io.ReadCloser
	// Mark is the mark under which it was read, Size its length in bytes.
	Mark fence.Mark
	Size int64
}
