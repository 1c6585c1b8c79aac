package main

import (
	"context"
	"fmt"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// noLeases is the value of --leases that turns the current check off.
const noLeases = "none"

// followLeases makes the proxy follow the store of the writers' leases, and the
// ledger that is in the same place. st is the proxy's own store.
func (a *app) followLeases(ctx context.Context, st store.Store, f *proxyFlags) (end func(), err error) {
	end = func() {}
	if f.leases == noLeases {
		return end, nil
	}
	// Each part that is opened closes before the ones it needs.
	after := func(do func()) {
		before := end
		end = func() { do(); before() }
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*a.timeout)
	defer cancel()
	name, _, err := a.storeName()
	if f.leases != "" {
		if name, err = storeAt(f.leases); err == nil {
			st, err = openWithin(ctx, name)
		}
		if err != nil {
			return end, fmt.Errorf("--leases: %w", err)
		}
		after(func() { _ = st.Close() })
	}
	if err != nil {
		return end, err
	}
	follow := func(from current.Source) (guard.Current, error) {
		follower, err := current.Follow(from, current.Options{Timeout: a.timeout})
		if err != nil {
			return nil, err
		}
		after(follower.Close)
		return follower, nil
	}
	known := owners{}
	if known.leases, err = follow(st); err != nil {
		return end, err
	}
	ledger, err := a.ledgerOf(ctx, name)
	if err != nil {
		return end, err
	}
	if ledger != nil {
		after(func() { _ = ledger.Close() })
		if known.items, err = follow(work.Owners{Ledger: ledger}); err != nil {
			return end, err
		}
	}
	f.o.Current, f.o.AdmitUnsure = known, f.unsure == admitUnsure
	return end, nil
}
