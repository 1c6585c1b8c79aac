package work

import (
	"context"
	"errors"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// Owners gives the records of a ledger's items by the keys that their stamps
// carry. Package guard/current asks it whether an owner is the current one.
type Owners struct{ Ledger Ledger }

// Get returns the record of an item, or the zero Record if no item has the key.
func (o Owners) Get(ctx context.Context, key string) (tenure.Record, error) {
	queue, id, err := ItemOf(tenure.Deed{Key: key})
	if err != nil {
		return tenure.Record{}, nil
	}
	item, err := o.Ledger.Get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && item.Queue != queue:
		return tenure.Record{}, nil
	case err != nil:
		return tenure.Record{}, err
	}
	return item.Record, nil
}

// Now is the ledger's clock.
func (o Owners) Now(ctx context.Context) (time.Time, error) { return o.Ledger.Now(ctx) }
