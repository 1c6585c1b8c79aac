package work

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
)

// Refusal is one write that did not count, as the ledger keeps it for
// operators. It names the verb, the token that was presented, and the newest
// token with its owner.
type Refusal struct {
	At    time.Time `json:"at"`
	Item  ID        `json:"item,omitempty"` // empty for a dispatcher's refused Take
	Queue string    `json:"queue,omitempty"`
	Verb  Verb      `json:"verb"` // a verb of items, or VerbTake or VerbSettle
	// Why is "stale" for a token below the newest. It is "collision" for a
	// token that this ledger never issued to this grant: the ledger, or the
	// lease store, has lost its memory.
	Why string `json:"why"`

	Presented      fence.Token `json:"presented"`
	PresentedGrant fence.Grant `json:"presented_grant"`
	PresentedOwner string      `json:"presented_owner,omitempty"` // if still known
	Newest         fence.Token `json:"newest"`
	NewestGrant    fence.Grant `json:"newest_grant"`
	NewestOwner    string      `json:"newest_owner,omitempty"`
}

// The verbs of refusals that concern effects.
const (
	VerbTake   Verb = "take"
	VerbSettle Verb = "settle"
)

// refusalOf returns the record of an error that refuses a write by its token,
// or nil for any other error.
func refusalOf(err error, verb Verb, queue string, id ID, now time.Time) *Refusal {
	r := &Refusal{At: now, Item: id, Queue: queue, Verb: verb}
	var stale *fence.StaleError
	var refused *fence.RefusedError
	switch {
	case errors.As(err, &stale):
		r.Why = "stale"
		r.Presented, r.PresentedGrant, r.PresentedOwner = stale.Presented.Token, stale.Presented.Grant,
			stale.PresentedOwner
		r.Newest, r.NewestGrant, r.NewestOwner = stale.Newest.Token, stale.Newest.Grant, stale.NewestOwner
	case errors.As(err, &refused):
		r.Why = "collision"
		r.Presented, r.PresentedGrant = refused.Presented.Token, refused.Presented.Grant
		r.Newest, r.NewestGrant = refused.Mark.Token, refused.Mark.Grant
	default:
		return nil
	}
	return r
}
