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
	// Now returns the time of the clock that deadlines in records are compared
	// with.
	Now(ctx context.Context) (time.Time, error)
}

// Ask asks a source whether a stamp's grant holds its key now. It returns nil
// if so. Its error matches tenure.ErrNotOwned if not, and store.ErrUnknown if
// the source does not say.
func Ask(ctx context.Context, from Source, stamp fence.Stamp) error {
	if err := stamp.Check(); err != nil {
		return err
	}
	rec, now, err := read(ctx, from, stamp.Key)
	if err != nil {
		return store.Unknown(err)
	}
	return rec.Current(stamp, now)
}

// read reads a record, and then the source's clock. If the record has expired
// by then, it reads it once more: if this process stood still in between, the
// holder may have renewed it. The clock does not matter for a record that is
// not held.
func read(ctx context.Context, from Source, key string) (rec tenure.Record, now time.Time, err error) {
	for range 2 {
		if rec, err = from.Get(ctx, key); err != nil || rec.State != tenure.Held {
			return rec, now, err
		}
		if now, err = from.Now(ctx); err != nil || rec.Alive(now) {
			return rec, now, err
		}
	}
	return rec, now, nil
}
