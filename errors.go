package croft

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// The errors of this package match these, with errors.Is.
var (
	// ErrLost is matched by every [*LostError]: the lease has ended, and its
	// work must stop.
	ErrLost = errors.New("lease lost")
	// ErrHeld is matched by every [*HeldError]: it is not your turn. The error
	// says why.
	ErrHeld = tenure.ErrHeld
	// ErrNotOwned is matched by every [*NotOwnedError]: the lease is not, or no
	// longer, yours.
	ErrNotOwned = tenure.ErrNotOwned
	// ErrUnknown is matched if the store could not be reached or did not
	// answer. The request may or may not have taken effect.
	ErrUnknown = store.ErrUnknown
	// ErrStale is matched by every [*fence.StaleError]: a guard has admitted a
	// newer owner.
	ErrStale = fence.ErrStale
	// ErrInvalid is matched by errors about bad input. Nothing was attempted.
	ErrInvalid = fence.ErrInvalid
	// ErrClosed is matched by the errors of a client's methods after its Close.
	// Its leases return a [*LostError] with [Closed].
	ErrClosed = errors.New("the client is closed")
	// ErrUnfenced is matched by errors of Takeover, Reserve and Revoke. The act
	// was done, but the fence is not up at a guard that the holder had named.
	// That guard may still admit the holder's writes.
	ErrUnfenced = guard.ErrUnfenced
	// ErrNotAllowed is matched by the error of a [Raise] at a target that is
	// neither in the store's own place nor allowed by the operator.
	ErrNotAllowed = guard.ErrNotAllowed
)

// HeldError says that a key cannot be acquired now. Its Why is one of
// [WhyHeld], [WhyReserved], [WhyHold] and [WhyPeriod], and its Record is that
// of the key.
type HeldError = tenure.HeldError

// The reasons why a key cannot be acquired now, in [HeldError].
const (
	WhyHeld     = tenure.WhyHeld     // somebody holds it
	WhyReserved = tenure.WhyReserved // an operator reserved it for another owner
	WhyHold     = tenure.WhyHold     // its work is done, and HoldFor keeps it
	WhyPeriod   = tenure.WhyPeriod   // its work is done in this period
)

// NotOwnedError is the store's answer to a request by a lease that is over. Its
// Record names the present owner, and the operator if one took it away.
type NotOwnedError = tenure.NotOwnedError

// Loss says why a lease ended.
type Loss string

// The reasons for which a lease ends.
const (
	// Superseded: the store has granted the key to another.
	Superseded Loss = "superseded"
	// Expired: its time ran out, by the local clock or by the store's. The
	// machine was asleep or too slow.
	Expired Loss = "expired"
	// TakenOver: an operator took over, reserved or revoked the key.
	TakenOver Loss = "taken_over"
	// Released: its holder released it.
	Released Loss = "released"
	// Unreachable: the store could not be reached in time to renew it.
	Unreachable Loss = "unreachable"
	// Stalled: its work reported no progress for StallAfter.
	Stalled Loss = "stalled"
	// HeldTooLong: it reached MaxHold.
	HeldTooLong Loss = "held_too_long"
	// Closed: its client was closed.
	Closed Loss = "closed"
)

// LostError is the cause with which a lease's context ends. It matches
// [ErrLost], and every error that Err matches.
type LostError struct {
	Key   string
	Token fence.Token
	Loss  Loss
	// Err is the store's answer that led to the loss, if there was one.
	Err error
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("lease lost: %q (token %d): %s", e.Key, e.Token, e.Loss.explain())
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes every LostError match [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the store's answer that led to the loss.
func (e *LostError) Unwrap() error { return e.Err }

// explain says what happened and what to do about it.
func (l Loss) explain() string {
	switch l {
	case Superseded:
		return "another owner has been granted the key; stop this work"
	case Expired:
		return "its time ran out before it was renewed; " +
			"stop this work, or resume the lease if nobody else has been granted the key"
	case TakenOver:
		return "an operator took it away; stop this work"
	case Released:
		return "it has been released"
	case Unreachable:
		return "the store could not be reached in time to renew it; " +
			"stop this work, or resume the lease when the store is back"
	case Stalled:
		return "its work reported no progress for too long, so it is no longer renewed"
	case HeldTooLong:
		return "it has been held for as long as allowed"
	case Closed:
		return "its client was closed; it lapses at its deadline"
	}
	return string(l)
}

// GuardError says that the fence could not be raised at a resource that the
// lease named. The lease was released: nothing may be written there under it.
type GuardError struct {
	Target string
	Err    error
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("the fence at %s could not be raised, so the lease was released: %v", e.Target, e.Err)
}

// Unwrap returns the guard's own error.
func (e *GuardError) Unwrap() error { return e.Err }
