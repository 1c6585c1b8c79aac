package main

import (
	"context"
	"fmt"

	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// noLeases is the value of --leases that turns the current check off.
const noLeases = "none"

// followLeases makes the proxy follow the store of the writers' leases, and the
// ledger that is in the same place. st is the proxy's own store.
func (a *app) followLeases(ctx context.Context, st store.Store, f *proxyFlags) (end func(), err error) {
	var opened []func() // to be closed from the last to the first
	end = func() {
		for i := len(opened) - 1; i >= 0; i-- {
			opened[i]()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	if f.leases == noLeases {
		return end, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.timeout)
	defer cancel()
	var name string
	if f.leases == "" {
		if name, _, err = a.storeName(); err != nil {
			return end, err
		}
	} else {
		if name, err = storeAt(f.leases); err == nil {
			st, err = openWithin(ctx, name)
		}
		if err != nil {
			return end, fmt.Errorf("--leases: %w", err)
		}
		opened = append(opened, func() { _ = st.Close() })
	}
	leases, err := current.Follow(st, &current.Options{Timeout: a.timeout})
	if err != nil {
		return end, err
	}
	opened = append(opened, leases.Close)
	checks := leasesOrItems{leases: leases}
	ledger, err := a.ledgerOf(ctx, name)
	if err != nil {
		return end, err
	}
	if ledger != nil {
		opened = append(opened, func() { _ = ledger.Close() })
		items, err := current.Follow(work.Owners{Ledger: ledger}, &current.Options{Timeout: a.timeout})
		if err != nil {
			return end, err
		}
		opened = append(opened, items.Close)
		checks.items = items
	}
	f.o.Current, f.o.AdmitUnsure = checks, f.unsure == admitUnsure
	return end, nil
}
