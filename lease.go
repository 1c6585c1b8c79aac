package croft

import (
	"context"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Lease is one term of a key, held by this process and renewed by its client until it ends. It is safe for concurrent use.
type Lease struct {
	deed tenure.Deed
	rec  tenure.Record
	ctx  context.Context
}

// Key is what the lease is on.
func (l *Lease) Key() string { return l.deed.Key }

// Token orders the owners of the key: every later grant has a higher one.
func (l *Lease) Token() fence.Token { return l.deed.Token }

// Stamp is what every write under the lease carries. It holds no secret.
func (l *Lease) Stamp() fence.Stamp { return l.deed.Stamp() }

// Deed lets another process act on the lease. It holds the secret.
func (l *Lease) Deed() tenure.Deed { return l.deed }

// Record is the newest record of the lease that the store has confirmed.
func (l *Lease) Record() tenure.Record { return l.rec }

// Context ends when the lease does; context.Cause then gives a [*LostError].
func (l *Lease) Context() context.Context { return l.ctx }

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err is nil while the lease lives, and then a [*LostError].
func (l *Lease) Err() error { return context.Cause(l.ctx) }

// Remaining is the time until the local deadline on a clock that runs during suspend; zero or less when the lease is over.
func (l *Lease) Remaining() time.Duration { return 0 }

// Report tells that the work has got somewhere.
func (l *Lease) Report(ctx context.Context, marker string) error { return ErrClosed }

// Release gives the key back after success.
func (l *Lease) Release(ctx context.Context) error { return ErrClosed }

// Fail gives the key back after failure.
func (l *Lease) Fail(ctx context.Context) error { return ErrClosed }

// Resume takes up a lease that was lost by time, if nobody was granted the key meanwhile.
func (l *Lease) Resume(ctx context.Context) (*Lease, error) { return nil, ErrClosed }
