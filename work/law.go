package work

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Outcome is what the law makes of a request. A ledger writes all of it in one
// transaction, or nothing.
type Outcome struct {
	// Item is the item to keep. If the request is refused or changes nothing,
	// it is the item as it was.
	Item Item
	// Changed is false if there is nothing to write: the request was refused,
	// or had taken effect before.
	Changed bool
	// Effects are new rows of the outbox. A row whose identity exists already
	// stays as it is.
	Effects []Effect
	// Refusal is to be recorded, if it is not nil. The error then says the
	// same.
	Refusal *Refusal
}

// Apply is the law of items. It takes the item that the ledger remembers (the
// zero Item if none), a request and the ledger's time, and returns what to
// write.
//
// For Add, pass the item with the request's ID. If there is none, pass the item
// of the request's queue that has its idempotency key. If there is none either,
// pass the zero Item.
//
// A refusal returns the item as it was, and one of these errors:
// [*fence.StaleError], a [*fence.RefusedError] that matches fence.ErrCollision,
// [*StateError], [*NotFoundError], [*ConflictError], or an error that matches
// fence.ErrInvalid.
//
// A repeated request, as after a lost reply, is not refused. Apply returns no
// error and the item as it was. So an owner that completes twice succeeds both
// times, and the first result stands.
func Apply(it Item, req Request, now time.Time) (Outcome, error) {
	if err := req.Check(); err != nil {
		return Outcome{Item: it}, err
	}
	now = tenure.Time(now)
	var next Item
	var changed bool
	var err error
	switch {
	case req.Verb == Add:
		next, changed, err = add(it, req, now)
	case it.IsZero():
		err = &NotFoundError{What: "item " + string(req.ID)}
	case it.ID != req.ID:
		err = fmt.Errorf("%w request: it is for item %s, the item is %s", fence.ErrInvalid, req.ID, it.ID)
	case req.Verb.ByOwner():
		next, changed, err = byOwner(it, req, now)
	case req.Verb == Requeue:
		next, changed, err = requeue(it, req, now)
	default:
		next, changed, err = byHand(it, req, now)
	}
	switch {
	case err != nil:
		out := Outcome{Item: it}
		// A reconciler that came too late has not tried to write another's
		// item.
		if req.Verb != Requeue {
			out.Refusal = refusalOf(err, req.Verb, it.Queue, it.ID, now)
		}
		return out, err
	case !changed:
		return Outcome{Item: it}, nil
	}
	out := Outcome{Item: next, Changed: true}
	if req.Verb == Complete {
		out.Effects = effects(next, req.Effects, now)
	}
	return out, nil
}

func add(it Item, req Request, now time.Time) (Item, bool, error) {
	limit := req.Limit
	if limit == 0 {
		limit = DefaultTries
	}
	if !it.IsZero() {
		same := it.Queue == req.Queue && it.Unique == req.Unique && it.Partition == req.Partition &&
			it.Priority == req.Priority && it.Limit == limit && bytes.Equal(it.Payload, req.Payload) &&
			slices.Equal(it.Guards, expand(req.Guards, it.Queue, it.ID))
		if !same {
			return it, false, &ConflictError{Queue: it.Queue, Unique: it.Unique, ID: it.ID}
		}
		return it, false, nil
	}
	ready := now.Add(whole(req.Delay))
	if !req.NotBefore.IsZero() {
		if ready = tenure.Time(req.NotBefore); ready.Before(now) {
			ready = now
		}
		if ready.After(now.Add(MaxDelay)) {
			return it, false, fmt.Errorf("%w not-before %s: it is more than %s ahead",
				fence.ErrInvalid, ready.Format(time.RFC3339), MaxDelay)
		}
	}
	return Item{
		ID: req.ID, Queue: req.Queue, Unique: req.Unique, Partition: req.Partition,
		State: Waiting, Priority: req.Priority, Ready: ready, Created: now, Limit: limit, Payload: req.Payload,
		Guards: req.Named(),
	}, true, nil
}

// whole truncates d to the ledger's precision, microseconds.
func whole(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }

// admit returns nil if the request presents the item's newest grant. Otherwise
// it returns why the write does not count, by the law of package fence.
func admit(it Item, req Request) error {
	mark, stamp := it.Mark(), req.Stamp(it.Queue)
	if mark == stamp.Mark() {
		return nil
	}
	_, err := mark.Admit(stamp)
	var stale *fence.StaleError
	switch {
	case err == nil: // the token is higher than any this ledger has issued
		return &fence.RefusedError{Err: fence.ErrCollision, Presented: stamp, Mark: mark}
	case errors.As(err, &stale):
		stale.NewestOwner = it.Record.Owner
		for _, term := range it.Record.History {
			if term.Grant == stamp.Grant {
				stale.PresentedOwner = term.Owner
			}
		}
	}
	return err
}

// refuse returns the item as it was, and a StateError.
func refuse(it Item, req Request, why string) (Item, bool, error) {
	return it, false, &StateError{
		What: string(req.Verb), Of: "item " + string(it.ID), State: string(it.State), Why: why,
	}
}
