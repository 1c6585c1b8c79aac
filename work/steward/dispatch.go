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
	// Slots is how many deliveries to one destination are in flight at a time.
	// Default: 16.
	Slots int
	// Ordered lists the destinations that get their effects in the order in
	// which these were created, one at a time. There an effect that waits for
	// another attempt, or whose fate is unknown, holds up those after it.
	// Default: none.
	Ordered []string
	// Timeout bounds one delivery. Default: 30 seconds.
	Timeout time.Duration
	// Deliveries is how often an effect is tried before it is given up.
	// Default: DefaultDeliveries.
	Deliveries int
	// Poll is the longest wait between two looks at the outbox while nothing is
	// due. With more than a few destinations they take turns. Default: 1
	// second.
	Poll time.Duration
	// Key is the key of the dispatcher's lease, and TTL how long the lease
	// lasts without renewal. If somebody has forged a token of the key that is
	// too high to exceed, all dispatchers need another key. Default:
	// "work/dispatcher", 30 seconds.
	Key string
	TTL time.Duration
	// Together is how many dispatchers with this Key work at a time, whatever
	// their destinations. Further ones wait. The second holds the lease of
	// Key/2, and so on. Default: 16.
	Together int
	// CallTimeout bounds one call of the ledger. Default: 5 seconds.
	CallTimeout time.Duration
	// Logger receives a record of every delivery. The record names are stable.
	// Default: nothing is logged.
	Logger *slog.Logger
	// Observe is called for every delivery after its settlement. Paused is
	// called when a destination is paused. There is one call at a time, and
	// deliveries wait for it. Default: nothing is called.
	Observe func(Delivery)
	Paused  func(Pause)
}

// Pause says that nothing is delivered to a destination for a while. It failed
// several times in a row, or it asked for the pause.
type Pause struct {
	To  string
	For time.Duration
	Err error // of the last delivery
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
	f.CallTimeout, f.Together = cmp.Or(f.CallTimeout, 5*time.Second), cmp.Or(f.Together, 16)
	if f.Together < 1 || f.Together > mostTogether {
		return f, fmt.Errorf("%w dispatcher options: between 1 and %d dispatchers may work at a time",
			fence.ErrInvalid, mostTogether)
	}
	if f.Slots < 1 || f.Slots > work.MaxClaim || f.Timeout <= 0 || f.Deliveries < 1 ||
		f.Poll <= 0 || f.CallTimeout <= 0 {
		return f, fmt.Errorf("%w dispatcher options: slots must be between 1 and %d, "+
			"times and deliveries more than 0", fence.ErrInvalid, work.MaxClaim)
	}
	return f, nil
}

// mostTogether bounds how many leases a dispatcher that waits must ask for.
const mostTogether = 100

// hold is how long the ledger leaves a taken effect to its dispatcher. That is
// enough to deliver it, and to ask the ledger more than once.
func (o DispatchOptions) hold() time.Duration { return o.Timeout + 4*o.CallTimeout }

// RunDispatcher delivers effects to the destinations in to, by name, until ctx
// ends. Several replicas may call it, and share the work: each holds a lease of
// its own, and each effect is leased to the dispatcher that took it. The ledger
// checks its stamp. Effects for other destinations are left to other
// dispatchers.
//
// Destinations do not wait for each other. A destination that fails five times
// in a row is paused, for a second at first and up to a minute. Then one
// delivery is made as a trial.
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
	for _, name := range f.Ordered {
		if to[name] == nil {
			return fmt.Errorf("%w ordered destination %q: the dispatcher does not have it", fence.ErrInvalid, name)
		}
	}
	var lease croft.LeaseOptions
	for n := 1; ctx.Err() == nil; {
		lease.TTL, lease.WaitFor = f.TTL, f.waitFor(n)
		err := c.Do(ctx, f.key(n), &lease, d.term)
		switch {
		case errors.Is(err, croft.ErrHeld):
			n = n%f.Together + 1
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

// key is the key of the n-th dispatcher's lease.
func (o DispatchOptions) key(n int) string {
	if n == 1 {
		return o.Key
	}
	return fmt.Sprintf("%s/%d", o.Key, n)
}

// waitFor is how long to wait for the n-th lease. If all are held, a dispatcher
// waits for the last, and looks at the others again from time to time.
func (o DispatchOptions) waitFor(n int) time.Duration {
	switch {
	case o.Together == 1:
		return croft.Forever
	case n < o.Together:
		return 0
	}
	return o.TTL / 3
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
