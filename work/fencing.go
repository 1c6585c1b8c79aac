package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/raise"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// FenceOptions say where the fence may be raised. A nil *FenceOptions and the
// zero FenceOptions mean the defaults.
type FenceOptions struct {
	// Raise lists where the fence may be raised, besides the ledger's own
	// place. The program that added an item named its guards, and they are
	// opened with the credentials of this process: allow only what you would
	// open yourself. Default: nowhere else.
	Raise guard.Allowed
	// CallTimeout bounds one call of a guard. What Act and Fence ask the ledger
	// ends with their context. Default: 5 seconds.
	CallTimeout time.Duration
}

func (o *FenceOptions) raiser(l Ledger, first bool) raise.Raiser {
	if o == nil {
		o = &FenceOptions{}
	}
	host, _ := l.(guard.Host)
	return raise.Raiser{
		Owners: Owners{l}, Host: host, Allowed: o.Raise, Timeout: cmp.Or(o.CallTimeout, 5*time.Second), First: first,
	}
}

// Transfer is the outcome of an operator's act, or of a Requeue.
type Transfer struct {
	// Answer is the ledger's. If the act was done and the fence is not up at
	// every guard of the item, Err matches [ErrUnfenced].
	Answer
	// Raised has an entry for every guard of the item. It says whether the
	// fence is up there, at the act's token or above. If nobody had owned the
	// item before, it leaves out the guards at which the fence is not up: there
	// is no owner to shut out.
	Raised []guard.Raised
}

// Act sends the acts of operators or of a reconciler to the ledger, in one
// call. Then it raises the fence at the guards of their items, to the tokens
// that the acts have burned. So these guards refuse the old owners' writes when
// Act returns. It opens only guards in the ledger's own place and those that
// o.Raise allows.
//
// Act asks the ledger once. After an answer that matches ErrUnknown or
// ErrUnfenced, send the same request again: the fence is raised again, too.
// Other requests than acts are answered as by Apply.
func Act(ctx context.Context, l Ledger, requests []Request, o *FenceOptions) []Transfer {
	answers := l.Apply(ctx, requests)
	transfers := make([]Transfer, len(answers))
	var asks []raise.Ask
	var of []int
	for i, a := range answers {
		transfers[i].Answer = a
		if verb := requests[i].Verb; a.Err != nil || !verb.ByHand() && verb != Requeue {
			continue
		}
		for _, target := range a.Item.Guards {
			asks, of = append(asks, raise.Ask{Stamp: a.Item.Stamp(), Target: target}), append(of, i)
		}
	}
	for n, raised := range o.raiser(l, false).Named(ctx, asks) {
		// Without an owner before, there is nobody to shut out, and most guards
		// have no mark yet.
		if t := &transfers[of[n]]; raised.Err == nil || wasOwned(t.Item.Record) {
			t.Raised = append(t.Raised, raised)
		}
	}
	for i := range transfers {
		if t := &transfers[i]; t.Err == nil {
			t.Err = unfenced(t.Item, t.Raised)
		}
	}
	return transfers
}

// unfenced returns the error about an act after which the fence is not up, or
// nil. The error has the stamp to raise by hand.
func unfenced(it Item, raised []guard.Raised) error {
	if err := guard.Unfenced(raised); err != nil {
		return fmt.Errorf("item %s, stamp %s: %w", it.ID, it.Stamp(), err)
	}
	return nil
}

// wasOwned reports whether somebody may have owned an item before the act that
// made the record's newest term. Cancel and Reassign make no owner. The owners
// that Replay and Requeue make end at once. A long history may have lost its
// beginning.
func wasOwned(rec tenure.Record) bool {
	if n := len(rec.History); n == 0 || n >= tenure.HistoryLen {
		return true
	}
	for _, t := range rec.History[:len(rec.History)-1] {
		atOnce := t.Ended == tenure.EndFailed && !t.Finished.After(t.Acquired) &&
			(t.Cause == tenure.Operator || t.Cause == tenure.Expired)
		if t.State == tenure.Held && !atOnce {
			return true
		}
	}
	return false
}

// UnfencedDelay is how long to give an item back for if the fence could not be
// raised at its guards. Somebody has to allow a place or to repair a guard.
const UnfencedDelay = 30 * time.Second

// Fence raises the fence at the guards of claimed items, and then makes sure
// that the claim is still the newest. An owner calls it before it begins to
// work; [Run] does so by itself. secret is that of the claim.
//
// Fence returns one error per item, nil if its owner may begin. After an error
// give the item back for [UnfencedDelay], and do not work on it: somebody else
// may own it, or one of its guards does not know this owner. Fence makes a
// missing mark where it may open the guard, because owners begin there.
func Fence(ctx context.Context, l Ledger, items []Item, secret tenure.Secret, o *FenceOptions) []error {
	errs := raiseFirst(ctx, o.raiser(l, true), items)
	var confirm []Request
	var of []int
	for i, it := range items {
		if errs[i] == nil && len(it.Guards) > 0 {
			confirm, of = append(confirm, Request{
				Verb: Heartbeat, ID: it.ID, Token: it.Record.Token, Secret: secret,
			}), append(of, i)
		}
	}
	if len(confirm) == 0 {
		return errs
	}
	for n, answer := range l.Apply(ctx, confirm) {
		errs[of[n]] = answer.Err
	}
	return errs
}

// raiseFirst raises the fence at the guards of items, for owners that are about
// to begin.
func raiseFirst(ctx context.Context, r raise.Raiser, items []Item) []error {
	var asks []raise.Ask
	var of []int
	for i, it := range items {
		for _, target := range it.Guards {
			asks, of = append(asks, raise.Ask{Stamp: it.Stamp(), Target: target}), append(of, i)
		}
	}
	errs := make([]error, len(items))
	for n, raised := range r.Named(ctx, asks) {
		if raised.Err != nil {
			errs[of[n]] = errors.Join(errs[of[n]], &GuardError{Target: raised.Target, Err: raised.Err})
		}
	}
	return errs
}

// GuardError says why an owner cannot begin: the fence is not up at a guard
// that its item names. It matches what Err matches.
type GuardError struct {
	Target string
	Err    error
}

func (e *GuardError) Error() string {
	s := fmt.Sprintf("the fence could not be raised at %s: %v", store.Redact(e.Target), e.Err)
	switch {
	case errors.Is(e.Err, guard.ErrNotAllowed):
		s += "; if you trust it, allow its place (Options.Raise, or --raise of croft work), otherwise cancel the item"
	case errors.Is(e.Err, fence.ErrWrongKey):
		s += "; every item has a key of its own, so put {id} into the target, or rekey the guard"
	}
	return s
}

// Unwrap returns the guard's error.
func (e *GuardError) Unwrap() error { return e.Err }
