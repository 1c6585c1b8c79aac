package work

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/identity"
)

// Handler does the work of one item. Its context ends when the item is lost, and context.Cause tells why with a [*LostError]; it should return soon after that. What it returns is written to the ledger in one step, effects included, if the item is
// still this worker's. An error makes the item wait for another attempt: see [Final], [RetryAfter] and [GiveBack]. A panic is an error.
type Handler func(ctx context.Context, job *Job) (Result, error)

// Result is what a handler has made of an item.
type Result struct {
	Body    []byte
	Effects []Emission
}

// Options shape a worker. A nil *Options and the zero Options are the defaults.
type Options struct {
	// Slots is how many items are worked on at once. Default: 8.
	Slots int
	// Owner is who works, as people know it; Instance tells this run of it from others. Default: user@host, and one that is unique.
	Owner, Instance string
	// TTL is how long the ledger keeps an item for a worker it does not hear from. Heartbeats go out every third of it, all in one call. Default: 1 minute.
	TTL time.Duration
	// Poll is the longest wait between two claims while nothing is ready. Ledgers that can wake the worker are asked sooner. Default: 1 second.
	Poll time.Duration
	// StallAfter withholds the heartbeat of an item of which neither progress nor a checkpoint was written for this long, by its handler or by the deed: it is lost at its deadline unless that happens before, and the attempt has failed. Default: 0, never.
	StallAfter time.Duration
	// Drain is how long handlers may go on when ctx has ended. After that their contexts end, and what they do not finish is given back. Default: 10 seconds.
	Drain time.Duration
	// Grace is how long they then have to return, and how long the ledger has to answer. Default: 5 seconds.
	Grace time.Duration
	// CallTimeout bounds one call of the ledger. Default: 5 seconds, at most a third of TTL.
	CallTimeout time.Duration
	// Logger receives what happens, under event names that stay as they are. Default: nothing is logged.
	Logger *slog.Logger
	// Observe is called for every [Event]: it must be quick and safe for concurrent use. Default: nothing is called.
	Observe func(Event)
}

func (o *Options) filled() (Options, error) {
	var f Options
	if o != nil {
		f = *o
	}
	f.Slots = cmp.Or(f.Slots, 8)
	f.TTL, f.Poll = cmp.Or(f.TTL, DefaultTTL), cmp.Or(f.Poll, time.Second)
	f.Drain, f.Grace = cmp.Or(f.Drain, 10*time.Second), cmp.Or(f.Grace, 5*time.Second)
	f.Owner, f.Instance = cmp.Or(f.Owner, identity.Owner()), cmp.Or(f.Instance, identity.Instance())
	f.CallTimeout = min(cmp.Or(f.CallTimeout, 5*time.Second), f.TTL/3)
	switch {
	case f.Slots < 1 || f.Slots > MaxClaim:
		return f, fmt.Errorf("%w slots %d: there must be between 1 and %d", fence.ErrInvalid, f.Slots, MaxClaim)
	case f.Poll < time.Millisecond, f.Drain < 0, f.Grace < 0, f.StallAfter < 0, f.CallTimeout <= 0:
		return f, fmt.Errorf("%w options: a time is negative, or Poll less than a millisecond", fence.ErrInvalid)
	}
	return f, checkTTL(f.TTL)
}

// Run works on the items of the queues that handlers has, until ctx ends: it claims them in batches, keeps them alive with one batch of heartbeats per tick, and writes what handlers return in combined calls. When ctx has ended it claims no more, lets
// handlers finish for Drain, and gives back what they have not finished. It returns nil when the ledger has answered everything, and otherwise an error that says how many items it knows nothing of: they lapse, and are requeued. Nothing is lost either
// way.
//
// Items whose worker died are requeued by the reconciler, in package work/steward: one should run somewhere.
func Run(ctx context.Context, l Ledger, handlers map[string]Handler, o *Options) error {
	return run(ctx, l, handlers, o, clock.System())
}

func run(ctx context.Context, l Ledger, handlers map[string]Handler, o *Options, clk clock.Clock) error {
	options, err := o.filled()
	if err != nil {
		return err
	}
	queues := slices.Sorted(maps.Keys(handlers))
	for _, q := range queues {
		if handlers[q] == nil {
			return fmt.Errorf("%w handler of queue %q: it is nil", fence.ErrInvalid, q)
		}
	}
	en := newEngine(queues, options)
	if err := en.nextClaim().Check(); err != nil {
		return err
	}
	return newRunner(l, handlers, en, clk).run(ctx)
}
