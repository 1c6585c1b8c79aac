package work

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// Retention is how long a ledger remembers what is over. Zero means the default, [Never] that it is kept for good.
type Retention struct {
	Done     time.Duration // also of cancelled items; default 7 days
	Dead     time.Duration // default 30 days: somebody should have looked
	Refusals time.Duration // default 30 days
}

// Never keeps what is over for good.
const Never time.Duration = 1<<63 - 1

// DefaultRetention is what the zero Retention means.
var DefaultRetention = Retention{Done: 7 * 24 * time.Hour, Dead: 30 * 24 * time.Hour, Refusals: 30 * 24 * time.Hour}

// Pruned tells what was forgotten.
type Pruned struct {
	Items    int `json:"items"`
	Refusals int `json:"refusals"`
}

// Filled is the retention with its defaults, or what is wrong with it.
func (r Retention) Filled() (Retention, error) {
	for _, f := range []struct {
		d     *time.Duration
		usual time.Duration
	}{{&r.Done, DefaultRetention.Done}, {&r.Dead, DefaultRetention.Dead}, {&r.Refusals, DefaultRetention.Refusals}} {
		switch {
		case *f.d < 0:
			return r, fmt.Errorf("%w retention %s: it must not be negative", fence.ErrInvalid, *f.d)
		case *f.d == 0:
			*f.d = f.usual
		}
	}
	return r, nil
}

// Pruning is Filled for a ledger that is to forget at most limit: also what is wrong with that.
func (r Retention) Pruning(limit int) (Retention, error) {
	if limit < 1 {
		return r, fmt.Errorf("%w limit %d: it must be at least 1", fence.ErrInvalid, limit)
	}
	return r.Filled()
}

// Cutoff is the moment before or at which something that is kept for d must have ended to be forgotten at now; zero if nothing is.
func Cutoff(now time.Time, d time.Duration) time.Time {
	if d == Never {
		return time.Time{}
	}
	return now.Add(-d)
}

// Forgets reports whether a filled retention lets go of the item at now: it was finished long enough ago. An item with an effect that is pending or unknown is kept all the same, which is for the ledger to look up.
func (r Retention) Forgets(it Item, now time.Time) bool {
	switch it.State {
	case Done, Cancelled:
		return !it.Finished.After(Cutoff(now, r.Done))
	case Dead:
		return !it.Finished.After(Cutoff(now, r.Dead))
	}
	return false
}

// Keeps reports whether the effect keeps its item from being forgotten.
func (e Effect) Keeps() bool { return e.State == Pending || e.State == Unknown }
