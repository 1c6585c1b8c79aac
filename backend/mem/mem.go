// Package mem keeps leases, and items of work, in memory, under a clock of the caller's choice: the store and the ledger for tests and for the goroutines of one process.
//
// The URL of both is "mem://name". All who open the same name in one process share one store and one ledger; they last as long as the process.
package mem

import (
	"time"

	"github.com/croft-dev/croft/store/cas"
)

// Options of a store in memory. The zero value is good.
type Options struct {
	// Now is the store's clock; default time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Retention is how long a record outlives its last use; default [store.DefaultRetention].
	Retention time.Duration
}

// Store is a handle on leases in memory. It forgets records only when Sweep is called: nothing happens in it that a test has not asked for.
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

// Open returns another handle on the same leases and the same clock, as another client has. Closing one leaves the others open. o may be nil; its
// Now is not used.
func (s *Store) Open(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	return &Store{
		Store: cas.New(s.reg, &cas.Options{Retention: o.Retention, SweepEvery: -1}),
		reg:   s.reg,
	}
}

// Wipe forgets everything, as a store does that has lost its memory. Waiters are woken.
func (s *Store) Wipe() { s.reg.wipe() }
