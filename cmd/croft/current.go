package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// unsurePolicy is the value of --when-unsure: what happens to a write if the
// store does not say whether its owner is the current one.
type unsurePolicy string

const (
	refuseUnsure unsurePolicy = "refuse"
	admitUnsure  unsurePolicy = "admit"
)

// Set reads the flag.
func (p *unsurePolicy) Set(text string) error {
	if text != string(refuseUnsure) && text != string(admitUnsure) {
		return fmt.Errorf("it is %q or %q", refuseUnsure, admitUnsure)
	}
	*p = unsurePolicy(text)
	return nil
}

func (p *unsurePolicy) String() string { return string(*p) }

// Type names the flag's value in help texts.
func (p *unsurePolicy) Type() string { return "refuse|admit" }

func unsureFlag(flags *pflag.FlagSet, policy *unsurePolicy, usual unsurePolicy) {
	*policy = usual
	flags.Var(policy, "when-unsure", "what to do with a write if the store does not say whether its owner is the current one: refuse it, or let the mark alone decide (admit)")
}

// owners tells whose lease or item of work a stamp is. The keys of items have
// a form of their own, but leases may have it, too.
type owners struct{ leases, items guard.Current }

// Check implements guard.Current.
func (o owners) Check(ctx context.Context, s fence.Stamp) error {
	if o.items != nil && isItem(s.Key) {
		err := o.items.Check(ctx, s)
		var refused *tenure.NotOwnedError
		if !errors.As(err, &refused) || !refused.Record.IsZero() {
			return err
		}
	}
	return o.leases.Check(ctx, s)
}

// isItem reports whether a key has the form of an item's.
func isItem(key string) bool {
	_, _, err := work.ItemOf(tenure.Deed{Key: key})
	return err == nil
}

// asked is a source that is asked anew for every stamp.
type asked struct{ current.Source }

// Check implements guard.Current.
func (a asked) Check(ctx context.Context, s fence.Stamp) error { return current.Ask(ctx, a.Source, s) }

// current asks the store whether a stamp's owner is the current one. A store
// that nobody named may be the wrong one: what it does not know is unknown.
func (a *app) current(ctx context.Context, s fence.Stamp) error {
	name, defaulted, err := a.storeName()
	if err != nil {
		return store.Unknown(err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	st, err := a.lookUp(ctx)
	if err != nil {
		return store.Unknown(err)
	}
	defer st.Close()
	known := owners{leases: asked{st}}
	if isItem(s.Key) {
		ledger, err := a.ledgerOf(ctx, name)
		if err != nil {
			return store.Unknown(err)
		}
		if ledger != nil {
			defer ledger.Close()
			known.items = asked{work.Owners{Ledger: ledger}}
		}
	}
	err = known.Check(ctx, s)
	var replaced *tenure.NotOwnedError
	if defaulted && errors.As(err, &replaced) && replaced.Record.IsZero() {
		return store.Unknown(fmt.Errorf("no store is named, and the one on this machine knows nothing of %q", s.Key))
	}
	return err
}

// admissible refuses what is to be done at a guard under a stamp, if the
// stamp's owner is not the current one. The mark's own refusal comes first.
func (a *app) admissible(ctx context.Context, g guard.Guard, s fence.Stamp, unsure unsurePolicy) error {
	if err := fence.CheckAhead(s.Token, time.Now()); err != nil {
		return err
	}
	err := a.current(ctx, s)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, tenure.ErrNotOwned):
		if unsure == admitUnsure && ctx.Err() == nil {
			return nil
		}
		return fmt.Errorf("whether the owner is still the current one: %w; nothing was changed", err)
	}
	if mark, markErr := g.Mark(ctx); markErr == nil {
		if _, refused := mark.Admit(s); outcomeOf(refused).exit == exitRefused {
			return refused
		}
	}
	return err
}

// newest reports whether a stamp that is not current is its key's newest all
// the same: its lease has ended, or it is an operator's revocation. Its fence
// may go up: only older owners are shut out.
func newest(err error, s fence.Stamp) bool {
	var refused *tenure.NotOwnedError
	return errors.As(err, &refused) && refused.Record.Token == s.Token && refused.Record.Grant == s.Grant
}

// checkedAtEnd reads content, and asks again at its end whether the write may
// still be made, if reading took a while.
type checkedAtEnd struct {
	io.Reader
	since time.Time
	check func() error
}

// lateAfter is how long content may take to be read without a second question.
const lateAfter = time.Second

// Read returns the refusal in place of the end.
func (r *checkedAtEnd) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) && time.Since(r.since) > lateAfter {
		if refusal := r.check(); refusal != nil {
			return 0, refusal
		}
	}
	return n, err
}
