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
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/identity"
)

// Handler does the work of one item. Its context ends when the item is lost;
// then context.Cause returns a [*LostError] that says why, and the handler
// should return soon.
//
// Run writes what the handler returns to the ledger in one step, effects
// included, if the item still belongs to this worker. If the handler returns an
// error or panics, the attempt has failed: the item waits for another attempt,
// or is dead after its last. [Final], [RetryAfter] and [ReleaseFor] change what
// an error does.
type Handler func(ctx context.Context, job *Job) (Result, error)

// Result is the outcome of an item: the body that the ledger keeps, and the
// effects that the completion sets off.
type Result struct {
	Body    []byte     // the item's result
	Effects []Emission // written to the outbox with it
}

// Options shape a worker. A nil *Options and the zero Options mean the
// defaults.
type Options struct {
	// Slots is how many items the worker does at a time. Default: 8.
	Slots int
	// Owner names the worker for people, and Instance tells this run of it from
	// others. Default: user@host, and a unique name.
	Owner, Instance string
	// TTL is how long the ledger keeps an item for a worker that it does not
	// hear from. The worker sends heartbeats every third of it, for all items
	// in one call. Default: 1 minute.
	TTL time.Duration
	// Poll is the longest wait between two claims while nothing is ready. A
	// ledger that can wake the worker shortens it. Default: 1 second.
	Poll time.Duration
	// StallAfter makes the worker stop the heartbeats of an item without
	// progress. Progress is a report or a checkpoint, by the handler or by
	// another process that has the deed. If none is written for this long,
	// heartbeats stop; if none follows before the deadline, the item is lost
	// and the attempt has failed. Default: 0, never.
	StallAfter time.Duration
	// Drain is how long handlers may go on after ctx has ended. Then their
	// contexts end too, and unfinished items are given back. Default: 10
	// seconds.
	Drain time.Duration
	// Grace is how long handlers have to return after Drain, and how long the
	// ledger then has to answer. Default: 5 seconds.
	Grace time.Duration
	// CallTimeout bounds one call of the ledger. Default: 5 seconds. It is
	// never more than a third of TTL.
	CallTimeout time.Duration
	// Raise lists where the worker may raise the fence, besides the ledger's
	// own place: see [FenceOptions]. The worker raises it at the guards of an
	// item before its handler begins. If it cannot, it emits EventUnfenced and
	// gives the item back for half a minute. Default: nowhere else.
	Raise guard.Allowed
	// Logger receives a record of every [Event]. The event names are stable.
	// Default: nothing is logged.
	Logger *slog.Logger
	// Observe is called for every [Event]. It must be quick, and safe for
	// concurrent use. Default: nothing is called.
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

// Run works on the queues that handlers names, until ctx ends. It claims items
// in batches, sends all heartbeats in one call, and writes what handlers return
// in combined calls.
//
// When ctx has ended, Run claims no more, lets handlers finish for Drain, and
// gives back the items they have not finished. It returns nil if the ledger has
// answered everything. Otherwise its error matches ErrUnknown and says how many
// items got no answer. Those are done, or lapse and are requeued, so none is
// lost. If the options, queues or handlers are invalid, the error matches
// ErrInvalid.
//
// Run does not requeue the items of workers that died. The reconciler does, in
// package work/steward: run one somewhere.
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
