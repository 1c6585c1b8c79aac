// Package guard is the contract of a guarded resource: a file, a row or an
// object that decides by itself whose writes still count.
//
// Every guard keeps a [fence.Mark] and decides by [fence.Mark.Admit]. The check
// and the write are one atomic step in the resource. Each kind of resource has
// its own way to write: a file is replaced, a row is updated in the caller's
// own transaction. So this package has only the methods that all guards share.
// Package guard/guardtest is the suite that every guard passes.
package guard

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/croft-dev/croft/fence"
)

// Guard is a resource whose mark can be read and moved. All methods are safe
// for concurrent use, also from several processes.
type Guard interface {
	// Target names the resource as a user would: by a path or a URL, without
	// passwords.
	Target() string
	// Mark returns the newest admitted stamp, or the zero Mark if there is
	// none.
	Mark(ctx context.Context) (fence.Mark, error)
	// Raise advances the mark to the stamp without writing. From then on the
	// resource refuses every older owner. Raise returns the mark that then
	// stands. If the stamp is not admitted, the error is the refusal of
	// fence.Mark.Admit. Raising twice is the same as raising once.
	Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error)
	// Rekey moves the resource to another key. It is an operator's act. The
	// resource keeps the actor and the note, which says why.
	Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error)
	// Reset takes back a mark whose token was made up, by [fence.Mark.Reset].
	// It is an operator's act, and the resource keeps actor and note as for
	// Rekey. floor is the highest token that the store has given out for the
	// key.
	Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error)
	// Rekeyed returns what the resource keeps of the last Rekey or Reset. It is
	// zero if there was none.
	Rekeyed(ctx context.Context) (Rekeyed, error)
	// Close frees the guard's resources.
	Close() error
}

// Artifact is a guarded resource whose whole content is replaced by each write.
type Artifact interface {
	Guard
	// Write reads all of r, and then replaces the content if the stamp is
	// admitted. Readers see the old content or the new, never a part. Nothing
	// changes if the stamp is refused, if r fails, or if there is another
	// error.
	Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (Receipt, error)
}

// Rekeyed describes the last Rekey or Reset of a resource: who did it, when and
// why.
type Rekeyed struct {
	From  string    `json:"from"` // the key before; "" if there was none
	Actor string    `json:"actor"`
	Note  string    `json:"note"`
	At    time.Time `json:"at"` // by the resource's clock if it has one, else by the actor's
}

// Receipt tells what a write did.
type Receipt struct {
	Mark  fence.Mark
	Bytes int64
	// Adopted is set if this was the first guarded write to content that
	// already existed.
	Adopted bool
}

// Counter is a guard that counts the writes it has admitted, where it keeps the
// mark. A guard is one only if it writes there at each write anyway.
type Counter interface {
	// Counts returns the count. It is zero before the first write or raise.
	Counts(ctx context.Context) (Counts, error)
}

// Counts tells how much a resource was used.
type Counts struct {
	// Writes is the number of writes admitted since the resource is guarded.
	Writes uint64
	// Changed is when a write, raise, rekey or reset last took effect: by the
	// resource's clock if it has one, else by the writer's.
	Changed time.Time
}

// Sweeper is a guard whose interrupted writes can leave garbage behind: an
// unfinished upload, or content that nothing refers to. Guards sweep by
// themselves now and then. Sweep does it now. It removes nothing that a running
// write may still need.
type Sweeper interface {
	Sweep(ctx context.Context) (removed int, err error)
}

// ErrBusy is matched if a guard could not be entered in time because another
// process is inside. Nothing was changed. Try again. If that does not help,
// look at the process that the error names.
var ErrBusy = errors.New("the guard is busy")

// Reader is a guard that can tell the committed content. Where a plain file or
// object is only a copy of it, the copy may be older for a moment.
type Reader interface {
	// Open opens the content of the newest admitted write. Content that was
	// there before the first one is given as it is. The error matches
	// fs.ErrNotExist if there is no content.
	Open(ctx context.Context) (*Content, error)
}

// Content is the committed content at one moment. If the bytes differ from the
// committed ones, the last Read returns an error instead of io.EOF.
type Content struct {
	io.ReadCloser
	// Mark is the mark under which it was read, Size its length in bytes.
	Mark fence.Mark
	Size int64
}
