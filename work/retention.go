package work

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// Retention says how long a ledger remembers finished items and refusals. Zero
// means the default. [Never] keeps them for good.
type Retention struct {
	Done     time.Duration // of done and cancelled items; default 7 days
	Dead     time.Duration // of dead items; default 30 days, for somebody to look
	Refusals time.Duration // default 30 days
}

// Never is the retention that keeps things for good.
const Never time.Duration = 1<<63 - 1

// DefaultRetention is what the zero Retention means.
var DefaultRetention = Retention{Done: 7 * 24 * time.Hour, Dead: 30 * 24 * time.Hour, Refusals: 30 * 24 * time.Hour}

// Pruned counts the items and refusals that a Prune has forgotten.
type Pruned struct {
	Items    int `json:"items"`
	Refusals int `json:"refusals"`
}

// Filled returns the retention with its defaults set, or an error that matches
// fence.ErrInvalid.
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

// Pruning is Filled, and also checks the limit of a Prune.
func (r Retention) Pruning(limit int) (Retention, error) {
	if limit < 1 {
		return r, fmt.Errorf("%w limit %d: it must be at least 1", fence.ErrInvalid, limit)
	}
	return r.Filled()
}

// past reports whether something that ended then has been kept for d, and may
// be forgotten at now.
func past(ended, now time.Time, d time.Duration) bool { return d != Never && !ended.After(now.Add(-d)) }

// Forgets reports whether a filled retention lets the item be forgotten at now.
// The ledger must also ask [Effect.Keeps] of the item's effects.
func (r Retention) Forgets(it Item, now time.Time) bool {
	switch it.State {
	case Done, Cancelled:
		return past(it.Finished, now, r.Done)
	case Dead:
		return past(it.Finished, now, r.Dead)
	}
	return false
}

// Keeps reports whether the effect keeps its item from being forgotten, because
// it is still pending or unknown.
func (e Effect) Keeps() bool { return e.State == Pending || e.State == Unknown }

// ForgetsRefusal reports whether a filled retention lets the refusal be
// forgotten at now.
func (r Retention) ForgetsRefusal(f Refusal, now time.Time) bool { return past(f.At, now, r.Refusals) }
