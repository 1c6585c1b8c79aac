package httpfence

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission"
)

// Options shape a [Gate]. Rules and Marks are required. Everything else has a
// default.
type Options struct {
	// Rules say which requests are writes to which resource. The first rule
	// that matches counts. A write that no rule matches is refused.
	Rules []Rule
	// Exempt lists requests that write nothing, whatever their method and the
	// Rules say. Only Methods and Pattern of these rules count.
	Exempt []Rule
	// Reads lists the methods that write nothing. All other methods, known or
	// not, are writes. Default: GET, HEAD, OPTIONS and TRACE.
	Reads []string
	// Marks opens the guard that keeps the mark of a resource; see [MarksAt].
	// The gate closes it.
	Marks func(ctx context.Context, resource string) (guard.Guard, error)
	// Served opens a second guard for a resource, in which a gate records that
	// it has served the resource. It matters when the store remembers no gate:
	// if Served does not remember one either, a gate begins at once, although
	// somebody has raised the mark. Default: any mark counts as a sign of an
	// earlier gate.
	Served func(ctx context.Context, resource string) (guard.Guard, error)
	// Client takes the lease that makes this gate the only one of a resource,
	// on the key LeasePrefix + resource. Without it the caller promises that no
	// other process serves these resources. The caller closes it, after the
	// gate.
	Client *croft.Client
	// Notes is a client of the store in which the gate notes its refusals, so
	// that operators find them there. Set it if the writers' leases are in
	// another store than Client's. The caller closes it, after the gate.
	// Default: Client.
	Notes *croft.Client
	// LeasePrefix begins the keys of the gate's leases. Default:
	// [DefaultLeasePrefix].
	LeasePrefix string
	// TTL is the TTL of the gate's leases: how long a gate that has died keeps
	// others from its resources. All gates of a resource must have the same. At
	// most 1 minute. Default: 15 seconds.
	TTL time.Duration
	// Settle is how long a resource stays closed when a write may still be on
	// its way. That is so after a forward without an answer, and when another
	// gate of the resource has died. It must be longer than anything that was
	// sent can take to have its effect. With croft.Forever only an operator
	// opens the resource ([Reopen], croft proxy open). Default: 30 seconds.
	Settle time.Duration
	// Wait is how long a write waits for its turn, and for a closed resource to
	// open. Default: 1 minute.
	Wait time.Duration
	// Idle is how long the gate keeps the lease of an unused resource. With
	// more than 2000 resources in use it is less. Default: 1 minute.
	Idle time.Duration
	// MaxWrites bounds the writes at the gate, waiting or inside. One client
	// may have as many as it leaves free: alone, half of them. A client is an
	// address (of IPv6, a network of 48 bits). A client with too many is
	// refused with 429. If the gate is full, everybody is refused with 503.
	// Default: 4096.
	MaxWrites int
	// MaxResources bounds the resources in use, shared like MaxWrites. Each
	// costs a lease and a mark, and counts until it has been idle for Idle.
	// Default: 65536.
	MaxResources int
	// Current, if set, also refuses a stamp whose owner is not the current one:
	// a replaced owner before its successor writes, and a forged stamp. See
	// package guard/current. The caller closes it, after the gate. Default: the
	// mark alone decides.
	Current guard.Current
	// Keys, if set, are the public keys of those who issue stamps. The gate
	// then refuses a stamp that none of them has signed. Default: stamps need
	// no signature.
	Keys *signed.Keys
	// AdmitUnsure lets a write in by the mark alone when Current cannot tell.
	// Default: it is refused with 503.
	AdmitUnsure bool
	// AllowUnstamped lets writes without a stamp in. They take their turn, but
	// are not checked. Default: they are refused.
	AllowUnstamped bool
	// RefuseNothing lets every write in, also those that would be refused. The
	// gate judges each, tells of it ([gate.Observed]) and notes it in the
	// Client's store. It is for a trial: nothing is protected meanwhile. The
	// gate takes no lease, lets writes in side by side, and closes nothing. So
	// no gate without RefuseNothing may serve the same resources at that time.
	// A mark moves only for a write that would be admitted. Default: off.
	RefuseNothing bool
	// Observe is called for every [gate.Event], on the goroutine where it
	// happens. It must be quick, and safe for concurrent use. Default: nothing
	// is called.
	Observe func(gate.Event)
	// Logger receives the same events. Default: nothing is logged.
	Logger *slog.Logger
}

// DefaultLeasePrefix begins the keys of gates' leases.
const DefaultLeasePrefix = admission.DefaultLeasePrefix

// fill checks what concerns requests, and fills in its defaults.
func (o *Options) fill() error {
	if len(o.Rules) == 0 {
		return fmt.Errorf("%w gate: it has no rules, so nothing could be written; "+
			"add one, for example /{path...} as service", fence.ErrInvalid)
	}
	for _, rules := range []*[]Rule{&o.Rules, &o.Exempt} {
		*rules = slices.Clone(*rules)
		for i := range *rules {
			if err := (*rules)[i].prepare((*rules)[i].String()); err != nil {
				return err
			}
		}
	}
	if len(o.Reads) == 0 {
		o.Reads = []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}
	}
	return nil
}

// admission returns what does not concern requests.
func (o *Options) admission() admission.Options {
	return admission.Options{
		NotedAs: "http:", Opener: " (croft proxy open)",
		Marks: o.Marks, Served: o.Served, Client: o.Client, Notes: o.Notes, LeasePrefix: o.LeasePrefix,
		TTL: o.TTL, Settle: o.Settle, Wait: o.Wait, Idle: o.Idle, MaxWrites: o.MaxWrites, MaxResources: o.MaxResources,
		Current: o.Current, AdmitUnsure: o.AdmitUnsure, RefuseNothing: o.RefuseNothing,
		Observe: o.Observe, Logger: o.Logger,
	}
}

// ErrOpen is matched by the error of [Reopen] if there is nothing to open.
var ErrOpen = admission.ErrOpen

// Reopen opens a closed resource for an operator. The operator must know that
// nothing sent to the service is still on its way: no program can find that
// out. The store keeps who did so and why. The prefix is the LeasePrefix of the
// gates, or "" for the default.
//
// If a gate serves the resource, or the last one ended well, there is nothing
// to open. Then the error matches [ErrOpen] and nothing changes.
func Reopen(ctx context.Context, client *croft.Client, prefix, resource string, h croft.ByHand) error {
	return admission.Reopen(ctx, client, prefix, resource, h)
}

// MarksAt returns a function for Options.Marks that opens guards named by a
// template. The template is a target as for guard.Open, with {resource} for the
// name of the resource. The program must import the backends of these guards.
// The error of MarksAt matches fence.ErrInvalid.
//
//	/var/lib/croft/marks/{resource}         a file each
//	redis://host:6379/0#proxy:{resource}    a hash each
//	postgres://host/db#proxy/{resource}     a row each
//
// The name is escaped as the target needs it. Of the files only their sidecars,
// which hold the marks, are ever made.
func MarksAt(template string) (func(ctx context.Context, resource string) (guard.Guard, error), error) {
	return admission.MarksAt(template)
}

// MarkFile returns the file in which a proxy with the marks "dir/{resource}"
// keeps the mark of a resource.
func MarkFile(dir, resource string) string { return admission.MarkFile(dir, resource) }
