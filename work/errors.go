package work

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// The errors of a ledger match one of these, with errors.Is. Treat any other
// error as unknown, unless it comes from the caller's own context.
var (
	// ErrStale is matched by every [*fence.StaleError]. The item has a newer
	// owner, nothing was changed, and the work must stop.
	ErrStale = fence.ErrStale
	// ErrInvalid is matched by errors about invalid input, [*LimitError]
	// included. Nothing was attempted.
	ErrInvalid = fence.ErrInvalid
	// ErrNotFound is matched by every [*NotFoundError].
	ErrNotFound = errors.New("not in the ledger")
	// ErrState is matched by every [*StateError].
	ErrState = errors.New("not possible in this state")
	// ErrConflict is matched by every [*ConflictError].
	ErrConflict = errors.New("the same name for other content")
	// ErrUnknown is matched if the ledger could not be reached or did not
	// answer. The request may or may not have taken effect. Sending the same
	// request again is safe.
	ErrUnknown = store.ErrUnknown
	// ErrUnfenced is matched by errors of [Act]. The act was done, but the
	// fence is not up at a guard that the item names. That guard may still
	// admit the old owner's writes.
	ErrUnfenced = guard.ErrUnfenced
)

// NotFoundError says that the ledger remembers no such item or effect. It was
// never added, or was pruned after its retention.
type NotFoundError struct {
	What string // the item or effect
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%s is %v: check the id; finished items are forgotten after the retention", e.What, ErrNotFound)
}

// Is makes every NotFoundError match ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// StateError refuses an operation that the state of the item or effect does not
// allow. Nothing was changed.
type StateError struct {
	What  string // the operation: a verb, or the state that an effect should get
	Of    string // the item or effect
	State string // its state
	Why   string // the reason, and what to do
}

func (e *StateError) Error() string {
	return fmt.Sprintf("cannot %s %s: it is %s; %s", e.What, e.Of, e.State, e.Why)
}

// Is makes every StateError match ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

// ConflictError refuses an Add whose ID or idempotency key belongs to an item
// with other content. Nothing was changed.
type ConflictError struct {
	Queue, Unique string
	ID            ID // of the stored item
}

func (e *ConflictError) Error() string {
	if e.Unique == "" {
		return fmt.Sprintf("item %s is there already, with other content; make a new id", e.ID)
	}
	return fmt.Sprintf("idempotency key %q of queue %q belongs to item %s, which has other content; "+
		"use another key for other work", e.Unique, e.Queue, e.ID)
}

// Is makes every ConflictError match ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }
