package steward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	croft "github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/work"
)

// DispatchOptions shape the dispatcher. A nil *DispatchOptions and the zero
// DispatchOptions mean the defaults.
type DispatchOptions struct {
	// Slots is how many deliveries are in flight at a time. Default: 16.
	Slots int
	// Timeout bounds one delivery. Default: 30 seconds.
	Timeout time.Duration
	// Deliveries is how often an effect is tried before it is given up.
	// Default: DefaultDeliveries.
	Deliveries int
	// Poll is the longest wait between two looks at the outbox while nothing is
	// due. Default: 1 second.
	Poll time.Duration
	// Key is the key of the dispatcher's lease, and TTL how long the lease
	// lasts without renewal. Dispatchers with other destinations need another
	// key. If somebody has forged a token of the key that is too high to
	// exceed, all dispatchers need another key, too. Default:
	// "work/dispatcher", 30 seconds.
	Key string
	TTL time.Duration
	// CallTimeout bounds one call of the ledger. Default: 5 seconds.
	CallTimeout time.Duration
	// Logger receives a record of every delivery. The record names are stable.
	// Default: nothing is logged.
	Logger *slog.Logger
	// Observe is called for every delivery after its settlement, by the
	// dispatcher's own goroutine. Default: nothing is called.
	Observe func(Delivery)
}

// Delivery is the outcome of one attempt to deliver an effect.
type Delivery struct {
	Effect work.Effect      // as it was taken
	State  work.EffectState // as it was settled
	Took   time.Duration
	Err    error // the error of Deliver
	// Refused is the ledger's error if it did not accept the settlement:
	// somebody else has settled the effect, this dispatcher was replaced, or
	// the ledger did not answer in time.
	Refused error
}

func (o *DispatchOptions) filled() (DispatchOptions, error) {
	var f DispatchOptions
	if o != nil {
		f = *o
	}
	f.Slots, f.Timeout, f.Deliveries = cmp.Or(f.Slots, 16), cmp.Or(f.Timeout, 30*time.Second),
		cmp.Or(f.Deliveries, DefaultDeliveries)
	f.Poll, f.Key, f.TTL = cmp.Or(f.Poll, time.Second), cmp.Or(f.Key, "work/dispatcher"),
		cmp.Or(f.TTL, 30*time.Second)
	f.CallTimeout = cmp.Or(f.CallTimeout, 5*time.Second)
	if f.Slots < 1 || f.Slots > work.MaxClaim || f.Timeout <= 0 || f.Deliveries < 1 ||
		f.Poll <= 0 || f.CallTimeout <= 0 {
		return f, fmt.Errorf("%w dispatcher options: slots must be between 1 and %d, "+
			"times and deliveries more than 0", fence.ErrInvalid, work.MaxClaim)
	}
	return f, nil
}

// hold is how long the ledger leaves a taken effect to its dispatcher. That is
// enough to deliver it, and to ask the ledger more than once.
func (o DispatchOptions) hold() time.Duration { return o.Timeout + 4*o.CallTimeout }

// RunDispatcher delivers effects to the destinations in to, by name, until ctx
// ends. Of all replicas that call it, one works at a time, under a lease of the
// client. The ledger checks its stamp. Effects for other destinations are left
// to other dispatchers.
//
// When ctx has ended, RunDispatcher takes nothing more, waits for the
// deliveries in flight, and returns nil. It returns an error only for invalid
// input, or if the client is closed.
func RunDispatcher(
	ctx context.Context, c *croft.Client, l work.Ledger, to map[string]Deliverer, o *DispatchOptions,
) error {
	f, err := o.filled()
	if err != nil {
		return err
	}
	if len(to) == 0 {
		return fmt.Errorf("%w dispatcher: it has no destination", fence.ErrInvalid)
	}
	for name, deliverer := range to {
		if deliverer == nil {
			return fmt.Errorf("%w destination %q: it is nil", fence.ErrInvalid, name)
		}
	}
	if err := checkSecrets(to); err != nil {
		return err
	}
	d := &dispatcher{ledger: l, to: to, names: slices.Sorted(maps.Keys(to)), o: f}
	lease := &croft.LeaseOptions{TTL: f.TTL, WaitFor: croft.Forever}
	for ctx.Err() == nil {
		err := c.Do(ctx, f.Key, lease, d.term)
		switch {
		case errors.Is(err, fence.ErrInvalid) && !errors.Is(err, fence.ErrAhead), errors.Is(err, croft.ErrClosed):
			return err
		case err != nil && ctx.Err() == nil:
			lease.Above, err = above(err, lease.Above)
			d.log(slog.LevelWarn, "dispatcher_stopped", slog.Any("error", err))
			_ = clock.Sleep(ctx, f.Poll)
		}
	}
	return nil
}

// above returns the token that the next term must exceed: the ledger remembers
// it, and the lease store does not.
//
// If no token can exceed it, above keeps the old one, and its error matches
// [fence.ErrAhead]. The text of that error is the same in every term. The
// ledger keeps a mark for each key, so the way out is another key.
func above(err error, was fence.Token) (fence.Token, error) {
	newest := fence.Token(0)
	if stale := (*fence.StaleError)(nil); errors.As(err, &stale) {
		newest = stale.Newest.Token
	} else if refused := (*fence.RefusedError)(nil); errors.As(err, &refused) {
		newest = refused.Mark.Token
	}
	if errors.Is(err, fence.ErrAhead) || !fence.CanFollow(newest, time.Now()) {
		return was, fmt.Errorf("%w token of the dispatcher's key, in the ledger or in the lease store: %w; "+
			"see that this machine's clock is right, then give all dispatchers another key",
			fence.ErrInvalid, fence.ErrAhead)
	}
	return max(was, newest), err
}
