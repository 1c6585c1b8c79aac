package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/tenure"
)

// WriteAnyway is a.Write for a trial run: it also writes if the stamp would be
// refused, and returns the refusal. So an owner learns whether stale writers
// have been at work, before it stops any of them.
//
// It gives up the law that no write follows a newer owner's. The mark keeps it:
// a write that would have been refused does not move the mark. WriteAnyway
// makes it under the stamp that the mark stands at, in the resource's own
// atomic step. If a newer owner comes first, WriteAnyway makes it under the
// newer mark.
//
// If current is not nil, WriteAnyway asks it once it has read all of r. A
// refusal by current counts as one by the mark. If current does not know, that
// error is returned as the refusal, and the mark decides.
//
// There are writes that WriteAnyway cannot make without moving the mark: an
// operator has left a floor at the resource, or the resource has no mark yet
// and the stamp was never issued. Nor can it make them at a guard with keys,
// because a mark has no signature. Then nothing changes, and the error is the
// refusal, too. A malformed stamp is an error as always.
//
// WriteAnyway keeps a copy of the content in a temporary file.
func WriteAnyway(
	ctx context.Context, a Artifact, stamp fence.Stamp, r io.Reader, current Current,
) (receipt Receipt, refusal, err error) {
	if err := stamp.CheckNow(); err != nil {
		return Receipt{}, nil, err
	}
	spool, err := os.CreateTemp("", "croft-observe-*")
	if err != nil {
		return Receipt{}, nil, fmt.Errorf("keeping a copy of the content: %w", err)
	}
	defer func() {
		_ = spool.Close()
		_ = os.Remove(spool.Name())
	}()
	size, err := wait.For(ctx, func() (int64, error) { return io.Copy(spool, r) })
	if err != nil {
		return Receipt{}, nil, fmt.Errorf("reading the content: %w", err)
	}
	write := func(s fence.Stamp) (Receipt, error) { return a.Write(ctx, s, io.NewSectionReader(spool, 0, size)) }
	if current != nil {
		refusal = current.Check(ctx, stamp)
	}
	if errors.Is(refusal, fence.ErrInvalid) || refusal != nil && ctx.Err() != nil {
		return Receipt{}, nil, refusal
	}
	if !Refused(refusal) && !errors.Is(refusal, tenure.ErrNotOwned) {
		receipt, err = write(stamp)
		if !Refused(err) {
			return receipt, refusal, err
		}
		refusal = err
	}
	for {
		mark, err := a.Mark(ctx)
		if err != nil {
			return Receipt{}, refusal, err
		}
		as, ok := standing(mark, stamp, refusal)
		if !ok {
			return Receipt{}, refusal, fmt.Errorf("%w; it cannot be written without moving the mark", refusal)
		}
		receipt, err = write(as)
		if errors.Is(err, fence.ErrInvalid) {
			return Receipt{}, refusal, fmt.Errorf("%w; it cannot be written under the mark's stamp: %w", refusal, err)
		}
		if !Refused(err) {
			return receipt, refusal, err
		}
	}
}

// standing returns a stamp under which a refused write leaves the mark as it
// is. Without a mark, that is the writer's own stamp, if the store has issued
// it.
func standing(mark fence.Mark, stamp fence.Stamp, refusal error) (as fence.Stamp, ok bool) {
	if mark.IsZero() {
		var notOwned *tenure.NotOwnedError
		return stamp, errors.As(refusal, &notOwned) && notOwned.Record.Issued(stamp)
	}
	as = mark.Stamp()
	as.Seq = 0 // an unnumbered write keeps the mark's number
	return as, mark.Grant != ""
}

// Refused reports whether an error is a refusal of [fence.Mark.Admit]. Nothing
// was changed.
func Refused(err error) bool {
	return errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrCollision) ||
		errors.Is(err, fence.ErrWrongKey) || errors.Is(err, fence.ErrRepeated)
}
