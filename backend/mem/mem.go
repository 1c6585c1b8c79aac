// Package mem keeps leases and items of work in memory, under a clock of the
// caller's choice. It is for tests, and for the goroutines of one process.
//
// The URL of a store or a ledger is "mem://name". All callers in one process
// that open the same name share one store and one ledger. Both last as long as
// the process.
//
// The handles of a store share one register: a map under a mutex. The register
// calls the hub of its waiters under that mutex, so waiters hear of changes in
// their order. The goroutines of a store are those of package store/cas.
package mem

import (
	"time"

	"github.com/croft-dev/croft/store/cas"
)

// Options of a store in memory. The zero value is good.
type Options struct {
	// Now is the store's clock. The default is time.Now. It must be safe for
	// concurrent use.
	Now func() time.Time
	// Retention is how long the store keeps a record after its last use. The
	// default is [store.DefaultRetention].
	Retention time.Duration
}

// Store is a handle on leases in memory. It forgets records only when Sweep is
// called, so nothing happens in it that a test has not asked for.
type Store struct {
	*cas.Store
	reg *register
}

// New makes an empty store. o may be nil.
func New(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	now := o.Now
	if now == nil {
		now = time.Now
	}
	return (&Store{reg: newRegister(now)}).Open(o)
}

// Open returns another handle on the same leases and the same clock, as another
// client has. Closing one handle leaves the others open. o may be nil. Its Now
// is not used.
func (s *Store) Open(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	return &Store{
		Store: cas.New(s.reg, &cas.Options{Retention: o.Retention, SweepEvery: -1}),
		reg:   s.reg,
	}
}

// Wipe forgets everything, like a store that has lost its data. It wakes all
// waiters.
func (s *Store) Wipe() { s.reg.wipe() }
