package current

import (
	"context"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Source has the records of keys: a lease store, or a ledger of work items
// (work.Owners).
type Source interface {
	// Get returns the record of a key, or the zero Record.
	Get(ctx context.Context, key string) (tenure.Record, error)
	// Now is the clock that deadlines in records are compared with.
	Now(ctx context.Context) (time.Time, error)
}

// Ask asks a source whether a stamp's grant holds its key now. It returns nil if
// so, an error that matches tenure.ErrNotOwned if not, and one that matches
// store.ErrUnknown if the source does not say.
func Ask(ctx context.Context, from Source, stamp fence.Stamp) error {
	if err := stamp.Check(); err != nil {
		return err
	}
	rec, err := from.Get(ctx, stamp.Key)
	if err != nil {
		return store.Unknown(err)
	}
	now, err := timeAt(ctx, from, rec)
	if err != nil {
		return store.Unknown(err)
	}
	return rec.Current(stamp, now)
}

// timeAt reads the source's clock, if the record is held. Otherwise no deadline
// matters.
func timeAt(ctx context.Context, from Source, rec tenure.Record) (time.Time, error) {
	if rec.State != tenure.Held {
		return time.Time{}, nil
	}
	return from.Now(ctx)
}
