package croft

import (
	"log/slog"
	"math"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// Forever is a WaitFor without bound: only the end of the context ends the wait.
const Forever time.Duration = math.MaxInt64

// Options shape a [Client]. A nil *Options and the zero Options are the defaults.
type Options struct {
	// Owner is who holds the leases, as people know it. Default: user@host.
	Owner string
	// Instance tells this run of the owner from others. Default: host, process id and a random part, unique per process.
	Instance string
	// Logger receives what happens, under event names that stay as they are. Default: nothing is logged.
	Logger *slog.Logger
	// Observe is called for every [Event], without locks held, on the goroutine where it happens: it must be quick and safe for
	// concurrent use. It may look at the client and its leases, but must not wait for either. Default: nothing is called.
	Observe func(Event)
	// CallTimeout bounds one call of the store. Default: 5 seconds. More than a day is a day.
	CallTimeout time.Duration
}

// LeaseOptions shape one lease. A nil *LeaseOptions and the zero LeaseOptions are the defaults.
type LeaseOptions struct {
	// TTL is how long the store keeps the key for a holder it does not hear from. Default: 1 minute.
	TTL time.Duration
	// WaitFor is how long to wait for a key that another holds: 0 is one try, [Forever] waits until the context ends.
	WaitFor time.Duration
	// Every refuses the lease while the last term that ended in success began less than half of it ago. Default: 0, no period.
	Every time.Duration
	// HoldFor keeps the key from everybody for this long after it was acquired, if the work ends in success earlier. Default: 0.
	HoldFor time.Duration
	// Above asks for a token above this one. Default: 0.
	Above fence.Token
	// Guards are the resources the work will write to. The fence is raised there at the grant, before Acquire returns, and their targets go
	// into the record, so that an operator's takeover can raise it too. They stay the caller's to close.
	Guards []guard.Guard
	// StallAfter withholds renewal when the work has reported no progress for this long, here or by the deed: unless it does before the local deadline, the
	// lease ends there as stalled. Default: 0, never.
	StallAfter time.Duration
	// MaxHold ends the lease this long after it was acquired, whatever the work does. Default: 0, no bound.
	MaxHold time.Duration
	// MaxFailures ends the lease after this many renewal intervals (a third of the TTL) in a row without an answer of the store, if the local deadline does
	// not end it before. Within an interval an unanswered renewal is sent again and again. Default: 3.
	MaxFailures int
	// Notice ends the context this long before the local deadline, for work that takes a while to stop. At most TTL/2. Default: 0.
	Notice time.Duration
}
