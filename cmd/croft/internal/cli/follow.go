package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// noLeases is the value of --leases that turns off the check of the current
// owner.
const noLeases = "none"

// LeasesUsage describes the flag --leases.
const LeasesUsage = "the `store` of the writers' leases, if it is another than --store; " +
	"\"none\": do not ask whether a writer is the current owner"

// Followed is the store of the writers' leases, as a proxy follows it.
type Followed struct {
	Current guard.Current // nil with --leases none
	Notes   *croft.Client // notes refusals there; nil if it is the proxy's own store
	End     func()
}

// FollowLeases makes a proxy follow the store of the writers' leases, and the
// ledger in the same place. st is the proxy's own store. The leases are the
// value of --leases.
func (a *App) FollowLeases(ctx context.Context, st store.Store, leases string) (f Followed, err error) {
	var opened []func() // closed from the last to the first
	f.End = func() {
		for i := len(opened) - 1; i >= 0; i-- {
			opened[i]()
		}
	}
	defer func() {
		if err != nil {
			f.End()
		}
	}()
	if leases == noLeases {
		return f, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	var name string
	if leases == "" {
		if name, _, err = a.StoreName(); err != nil {
			return f, err
		}
	} else {
		if name, err = a.StoreAt(leases); err == nil {
			st, err = OpenWithin(ctx, name)
		}
		if err != nil {
			return f, fmt.Errorf("--leases: %w", err)
		}
		opened = append(opened, func() { _ = st.Close() })
		// Operators look for a refusal where the lease is.
		f.Notes = croft.New(st, &croft.Options{Owner: a.Owner, CallTimeout: a.Timeout})
		opened = append(opened, func() { _ = f.Notes.Close() })
	}
	owners, err := current.Follow(st, &current.Options{Timeout: a.Timeout})
	if err != nil {
		return f, err
	}
	opened = append(opened, owners.Close)
	ledger := &lateLedger{open: func(ctx context.Context) (work.Ledger, error) { return a.LedgerOf(ctx, name) }}
	opened = append(opened, ledger.close)
	items, err := current.Follow(ledger, &current.Options{Timeout: a.Timeout})
	if err != nil {
		return f, err
	}
	opened = append(opened, items.Close)
	f.Current = LeasesOrItems{Leases: owners, Items: items}
	return f, nil
}

// lateLedger reads the records of a ledger. It opens the ledger at the first
// question about an item, because the ledger may be created after the proxy has
// started.
type lateLedger struct {
	open func(context.Context) (work.Ledger, error)

	mu     sync.Mutex
	ledger work.Ledger // nil while not opened
	closed bool
}

// opened returns the ledger, or nil if there is none.
func (l *lateLedger) opened(ctx context.Context) (work.Ledger, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ledger != nil || l.closed {
		return l.ledger, nil
	}
	ledger, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	l.ledger = ledger
	return ledger, nil
}

// Get returns the record of an item. It is zero if there is no such item, or no
// ledger.
func (l *lateLedger) Get(ctx context.Context, key string) (tenure.Record, error) {
	ledger, err := l.opened(ctx)
	if ledger == nil {
		return tenure.Record{}, err
	}
	return work.Owners{Ledger: ledger}.Get(ctx, key)
}

// Now returns the ledger's time. Get comes first, so there is a ledger.
func (l *lateLedger) Now(ctx context.Context) (time.Time, error) {
	ledger, err := l.opened(ctx)
	if ledger == nil {
		return time.Time{}, errors.Join(err, errors.New("the ledger is closed"))
	}
	return ledger.Now(ctx)
}

func (l *lateLedger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ledger != nil {
		_ = l.ledger.Close()
	}
	l.ledger, l.closed = nil, true
}
