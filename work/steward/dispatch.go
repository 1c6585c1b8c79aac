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
	"github.com/croft-dev/croft/work"
)

// DispatchOptions shape the dispatcher. A nil *DispatchOptions and the zero DispatchOptions are the defaults.
type DispatchOptions struct {
	// Slots is how many effects are on their way at once. Default: 16.
	Slots int
	// Timeout bounds one delivery. Default: 30 seconds.
	Timeout time.Duration
	// Deliveries is how often an effect is delivered before it is given up. Default: DefaultDeliveries.
	Deliveries int
	// Poll is the longest wait between two looks at the outbox while nothing is due. Default: 1 second.
	Poll time.Duration
	// Key is what the dispatcher's lease is on, and TTL how long it lasts
	// without renewal. Dispatchers with other destinations need another key. If
	// a token of the key was made up, all dispatchers need another key, too.
	// Default: "work/dispatcher", 30 seconds.
	Key string
	TTL time.Duration
	// CallTimeout bounds one call of the ledger. Default: 5 seconds.
	CallTimeout time.Duration
	// Logger receives what happens, under names that stay as they are. Default: nothing is logged.
	Logger *slog.Logger
	// Observe is called for every effect that was settled, by the dispatcher's own goroutine. Default: nothing is called.
	Observe func(Delivery)
}

// Delivery is what became of one attempt to deliver an effect.
type Delivery struct {
	Effect work.Effect      // as it was taken
	State  work.EffectState // as it was settled
	Took   time.Duration
	Err    error // what Deliver returned
	// Refused is the ledger's answer if it did not take the settlement: another has settled the effect, or this dispatcher was replaced.
	Refused error
}

func (o *DispatchOptions) filled() (DispatchOptions, error) {
	var f DispatchOptions
	if o != nil {
		f = *o
	}
	f.Slots, f.Timeout, f.Deliveries = cmp.Or(f.Slots, 16), cmp.Or(f.Timeout, 30*time.Second), cmp.Or(f.Deliveries, DefaultDeliveries)
	f.Poll, f.Key, f.TTL = cmp.Or(f.Poll, time.Second), cmp.Or(f.Key, "work/dispatcher"), cmp.Or(f.TTL, 30*time.Second)
	f.CallTimeout = cmp.Or(f.CallTimeout, 5*time.Second)
	if f.Slots < 1 || f.Slots > work.MaxClaim || f.Timeout <= 0 || f.Deliveries < 1 || f.Poll <= 0 || f.CallTimeout <= 0 {
		return f, fmt.Errorf("%w dispatcher options: slots must be between 1 and %d, times and deliveries more than 0", fence.ErrInvalid, work.MaxClaim)
	}
	return f, nil
}

// hold is how long an effect that was taken is left to its dispatcher: enough to deliver it and to have the ledger asked twice.
func (o DispatchOptions) hold() time.Duration { return o.Timeout + 4*o.CallTimeout }

// RunDispatcher delivers effects to their destinations, by name, until ctx ends: one of all replicas that call it does, under a lease of the client, and its stamp is checked by the ledger. Effects for destinations that are not in to are left for other dispatchers. When ctx has
// ended it takes nothing more and waits for what is on its way. It returns nil then, and otherwise only for bad input.
func RunDispatcher(ctx context.Context, c *croft.Client, l work.Ledger, to map[string]Deliverer, o *DispatchOptions) error {
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
			sleep(ctx, f.Poll)
		}
	}
	return nil
}

// above is the token that the next term must exceed: one that the ledger
// remembers and the lease store does not. It follows no token that nothing can
// exceed: then the error matches [fence.ErrAhead], and its text is the same in
// every term. The ledger keeps a mark for each key, so another key is the way
// back.
func above(err error, was fence.Token) (fence.Token, error) {
	newest := fence.Token(0)
	if stale := (*fence.StaleError)(nil); errors.As(err, &stale) {
		newest = stale.Newest.Token
	} else if refused := (*fence.RefusedError)(nil); errors.As(err, &refused) {
		newest = refused.Mark.Token
	}
	if errors.Is(err, fence.ErrAhead) || !fence.CanFollow(newest, time.Now()) {
		return was, fmt.Errorf("%w token of the dispatcher's key, in the ledger or in the lease store: %w; "+
			"see that this machine's clock is right, then give all dispatchers another key", fence.ErrInvalid, fence.ErrAhead)
	}
	return max(was, newest), err
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
