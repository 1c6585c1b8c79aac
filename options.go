package croft

import (
	"log/slog"
	"math"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/tenure"
)

// Once is the period of work that is to succeed once and never again: see
// [LeaseOptions.Every].
const Once = tenure.Once

// Forever is a WaitFor without limit: only the end of the context ends the
// wait.
const Forever time.Duration = math.MaxInt64

// Guard is a resource that refuses the writes of earlier owners. Package
// backend/file and other backends make them.
type Guard = guard.Guard

// Record is what the store remembers of a key.
type Record = tenure.Record

// Stamp travels with every write: see [Lease.Stamp].
type Stamp = fence.Stamp

// Options configure a [Client]. A nil *Options and the zero Options are the
// defaults.
type Options struct {
	// Owner names the holder of the leases, for people. Default: user@host.
	Owner string
	// Instance tells this run of the owner from others. Default: host, process
	// id and a random part, unique per process.
	Instance string
	// SignKey signs the stamps of this client's leases, for guards that admit
	// only signed ones. Rather let a server sign, so that clients do not have
	// the key. Default: stamps are signed by the store, or not at all.
	SignKey *signed.Key
	// Logger receives every [Event] as a log record. The record's message is
	// the event's kind, and these names do not change. Default: nothing is
	// logged.
	Logger *slog.Logger
	// Observe is called for every [Event], without locks held, on the goroutine
	// where it happens. It must be quick and safe for concurrent use. It may
	// look at the client and its leases, but must not wait for them. Default:
	// nothing is called.
	Observe func(Event)
	// CallTimeout limits one call of the store. Default: 5 seconds. Maximum:
	// one day.
	CallTimeout time.Duration
}

// LeaseOptions configure one lease. A nil *LeaseOptions and the zero
// LeaseOptions are the defaults.
type LeaseOptions struct {
	// TTL is how long the store keeps the key for a holder that does not renew.
	// Default: 1 minute.
	TTL time.Duration
	// WaitFor is how long to wait for a key that another holds. [Forever] waits
	// until the context ends. Default: 0, one try.
	WaitFor time.Duration
	// Slots lets this many hold the key at the same time. The slots are the
	// keys "KEY/1" to "KEY/N", and the lease is on one of them. All contenders
	// must name the same number. Slots go with neither Every nor Guards. At
	// most [MaxSlots]. Default: 0, one holder of the key itself.
	Slots int
	// Every is the period of work that is done once per period: see
	// [Client.Every]. The store refuses the lease if the work has succeeded in
	// this period. Default: 0, no period.
	Every time.Duration
	// HoldFor keeps the key from everybody until this long after it was
	// acquired, if the work succeeds before that. Default: 0, no hold.
	HoldFor time.Duration
	// Above asks for a token above this one. Default: 0.
	Above fence.Token
	// Guards are the resources that the work will write to. Acquire raises the
	// fence at each of them before it returns. The record names them, so that
	// an operator's takeover can raise the fence there too. The caller closes
	// them. Default: none.
	Guards []Guard
	// StallAfter stops the renewal of a lease whose work has reported no
	// progress for this long, by [Lease.Report] or [Lease.Save], or by deed. If
	// no progress comes before the local deadline either, the lease ends as
	// [Stalled]. Default: 0, never.
	StallAfter time.Duration
	// MaxHold ends the lease this long after it was acquired, as [HeldTooLong].
	// Default: 0, no limit.
	MaxHold time.Duration
	// MaxFailures ends the lease after this many renewal intervals in a row
	// without an answer of the store, as [Unreachable]. An interval is at most
	// a third of the TTL. Within it, an unanswered renewal is sent again. The
	// local deadline may end the lease earlier. Default: 3.
	MaxFailures int
	// Notice ends the context this long before the local deadline, for work
	// that takes a while to stop. At most TTL/2. Default: 0.
	Notice time.Duration
}
