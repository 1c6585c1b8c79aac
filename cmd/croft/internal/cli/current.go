package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/pflag"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// UnsurePolicy is the value of --when-unsure. It says what happens to a write
// if the store does not say whether its owner is the current one.
type UnsurePolicy string

// These are the values of --when-unsure.
const (
	RefuseUnsure UnsurePolicy = "refuse"
	AdmitUnsure  UnsurePolicy = "admit"
)

// Set reads the flag.
func (p *UnsurePolicy) Set(text string) error {
	if text != string(RefuseUnsure) && text != string(AdmitUnsure) {
		return fmt.Errorf("it is %q or %q", RefuseUnsure, AdmitUnsure)
	}
	*p = UnsurePolicy(text)
	return nil
}

func (p *UnsurePolicy) String() string { return string(*p) }

// Type names the flag's value in help texts.
func (p *UnsurePolicy) Type() string { return "refuse|admit" }

// UnsureFlag defines --when-unsure with its default.
func UnsureFlag(flags *pflag.FlagSet, policy *UnsurePolicy, usual UnsurePolicy) {
	*policy = usual
	flags.Var(policy, "when-unsure",
		"if the store does not say who the current owner is: refuse, or admit by the mark alone")
}

// LeasesOrItems checks a stamp in the ledger if its key looks like an item's.
// Otherwise, or if the ledger has no such item, it checks the leases. A lease
// can have such a key, too. So if the ledger does not answer, it also asks the
// leases: the owner may be the current one there.
type LeasesOrItems struct{ Leases, Items guard.Current }

// Check implements guard.Current.
func (o LeasesOrItems) Check(ctx context.Context, s fence.Stamp) error {
	if o.Items == nil || !isItem(s.Key) {
		return o.Leases.Check(ctx, s)
	}
	err := o.Items.Check(ctx, s)
	var refused *tenure.NotOwnedError
	switch {
	case errors.As(err, &refused) && refused.Record.IsZero(): // no such item
		return o.Leases.Check(ctx, s)
	case errors.Is(err, store.ErrUnknown) && o.Leases.Check(ctx, s) == nil:
		return nil
	}
	return err
}

// isItem reports whether a key has the form of a work item's key.
func isItem(key string) bool {
	_, _, err := work.ItemOf(tenure.Deed{Key: key})
	return err == nil
}

// askEach asks its source again for every stamp. It caches nothing.
type askEach struct{ current.Source }

// Check implements guard.Current.
func (a askEach) Check(ctx context.Context, s fence.Stamp) error {
	return current.Ask(ctx, a.Source, s)
}

// checkCurrent asks the store whether a stamp's owner is the current one. It
// gives up after the timeout, even if the system call does not return, as on a
// dead mount.
func (a *App) checkCurrent(ctx context.Context, s fence.Stamp) error {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- a.askStore(ctx, s) }()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return store.Unknown(fmt.Errorf("asking the store: %w", ctx.Err()))
	}
}

// askStore asks the store whether a stamp's owner is the current one. Without
// --store and CROFT_STORE it asks the default store. That may be the wrong one,
// so a grant that it does not know is an unknown outcome.
func (a *App) askStore(ctx context.Context, s fence.Stamp) error {
	name, defaulted, err := a.StoreName()
	if err != nil {
		return err
	}
	st, err := a.LookUp(ctx)
	if errors.Is(err, fs.ErrNotExist) && defaulted {
		return store.Unknown(fmt.Errorf("%w, and there is none on this machine; give --store", errNoStore))
	}
	if err != nil {
		return unlessInvalid(err)
	}
	defer st.Close()
	known := LeasesOrItems{Leases: askEach{st}}
	if isItem(s.Key) {
		ledger, err := a.LedgerOf(ctx, name)
		if err != nil {
			return unlessInvalid(err)
		}
		if ledger != nil {
			defer ledger.Close()
			known.Items = askEach{work.Owners{Ledger: ledger}}
		}
	}
	err = known.Check(ctx, s)
	var notOwned *tenure.NotOwnedError
	if defaulted && errors.As(err, &notOwned) && !notOwned.Record.Issued(s) {
		const advice = "%w, and the one on this machine does not know this grant of %q; give --store"
		return store.Unknown(fmt.Errorf(advice, errNoStore, s.Key))
	}
	return err
}

// unlessInvalid makes an error an unknown outcome, unless it is bad input.
func unlessInvalid(err error) error {
	if errors.Is(err, fence.ErrInvalid) {
		return err
	}
	return store.Unknown(err)
}

// errNoStore marks an unknown outcome of the default store: it does not exist,
// or does not know the grant.
var errNoStore = errors.New("no store is named")

// Admissible returns an error if a stamp's owner is not the current one. If the
// guard's mark refuses the stamp, too, it returns the mark's refusal. If the
// store does not answer, the policy decides, and Admissible calls undecided
// with the decision. It does not call it if no store is named.
func (a *App) Admissible(
	ctx context.Context, g guard.Guard, s fence.Stamp, unsure UnsurePolicy, undecided func(admitted bool),
) error {
	if err := fence.CheckAhead(s.Token, time.Now()); err != nil {
		return err
	}
	err := a.checkCurrent(ctx, s)
	if err == nil {
		return nil
	}
	if mark, markErr := g.Mark(ctx); markErr == nil {
		if _, refused := mark.Admit(s); OutcomeOf(refused).Exit == ExitRefused {
			return refused
		}
	}
	switch {
	case errors.Is(err, tenure.ErrNotOwned) || errors.Is(err, fence.ErrInvalid):
		return err
	case unsure == RefuseUnsure || ctx.Err() != nil:
		if ctx.Err() == nil && !errors.Is(err, errNoStore) {
			undecided(false)
		}
		return fmt.Errorf("cannot tell whether the owner is still the current one: %w; nothing was changed", err)
	case !errors.Is(err, errNoStore):
		undecided(true)
		why := Lines(a.Redact(err.Error()))
		fmt.Fprintf(a.Stderr, "croft: the mark alone decides, because the store does not answer: %s\n", why)
	}
	return nil
}
