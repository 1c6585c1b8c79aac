package tenure

import (
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// The two refusals of the law, to match with errors.Is. Neither means that the
// store could not be reached.
var (
	// ErrHeld is matched by every [*HeldError]: it is not your turn.
	ErrHeld = errors.New("held by another")
	// ErrNotOwned is matched by every [*NotOwnedError]: the lease is not, or no
	// longer, yours.
	ErrNotOwned = errors.New("not owned")
)

// Why says why a request was refused.
type Why string

// The reasons why a key cannot be acquired now.
const (
	WhyHeld     Why = "held"     // somebody holds it
	WhyReserved Why = "reserved" // an operator reserved it for another owner
	WhyHold     Why = "hold"     // the last term succeeded and keeps the key until HoldUntil
	WhyPeriod   Why = "period"   // the work was done in this period
)

// The reasons why a grant does not own the key.
const (
	WhyReleased   Why = "released"   // its holder released it
	WhyExpired    Why = "expired"    // its deadline passed; nobody else was granted the key
	WhySuperseded Why = "superseded" // its deadline passed, and another was granted the key
	WhyTakenOver  Why = "taken_over" // an operator ended it
	WhyUnknown    Why = "unknown"    // the store remembers nothing of it
)

// HeldError refuses an Acquire. The key cannot be had before Until, unless its
// holder releases it earlier.
type HeldError struct {
	Record Record
	// Why is WhyHeld, WhyReserved, WhyHold or WhyPeriod.
	Why Why
	// Until and Now are on the store's clock.
	Until, Now time.Time
}

// Remaining returns how long the refusal lasts if nothing else happens. For a
// held key it is at most the TTL: a clock of whole seconds lags behind the
// grant.
func (e *HeldError) Remaining() time.Duration {
	left := e.Until.Sub(e.Now)
	if ttl := e.Record.TTL; e.Why == WhyHeld && ttl > 0 {
		left = min(left, ttl)
	}
	return left
}

func (e *HeldError) Error() string {
	left := rounded(e.Remaining())
	switch e.Why {
	case WhyReserved:
		return fmt.Sprintf("%q is reserved for %s for another %s", e.Record.Key, e.Record.Owner, left)
	case WhyHold:
		return fmt.Sprintf("%q was done by %s and is on hold for another %s", e.Record.Key, e.Record.Owner, left)
	case WhyPeriod:
		if e.Remaining() > MaxPeriod {
			return fmt.Sprintf("%q has been done, and is to be done once", e.Record.Key)
		}
		return fmt.Sprintf("%q has been done in this period; it is due again in %s", e.Record.Key, left)
	}
	return fmt.Sprintf("%q is held by %s (token %d) for another %s unless renewed",
		e.Record.Key, e.Record.Owner, e.Record.Token, left)
}

// rounded drops the milliseconds of a long time, which nobody reads.
func rounded(d time.Duration) time.Duration {
	if d >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

// Is makes every HeldError match [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// NotOwnedError says that a grant does not, or no longer, own the key. Nothing
// was changed, and the holder must stop.
type NotOwnedError struct {
	Grant fence.Grant
	// Record is the key's current record, zero if the store remembers nothing.
	Record Record
	// Why is WhyReleased, WhyExpired, WhySuperseded, WhyTakenOver or
	// WhyUnknown.
	Why Why
	Now time.Time
}

func (e *NotOwnedError) Error() string {
	switch {
	case e.Why == WhyReleased:
		return fmt.Sprintf("not owned: the lease on %q was released; acquire it again to go on", e.Record.Key)
	case e.Why == WhyExpired:
		return fmt.Sprintf("not owned: the lease on %q expired %s ago; "+
			"stop this work, or resume before another is granted",
			e.Record.Key, rounded(e.Now.Sub(e.Record.Deadline)))
	case e.Record.IsZero():
		return "not owned: the store remembers nothing of this lease; stop this work and acquire again"
	case e.Why == WhyTakenOver:
		return fmt.Sprintf("not owned: %q was taken over by hand%s; newest token %d; stop this work",
			e.Record.Key, e.by(), e.Record.Token)
	case e.Why == WhyUnknown:
		return fmt.Sprintf("not owned: %q has no such grant; %s; stop this work", e.Record.Key, e.newest())
	}
	return fmt.Sprintf("not owned: %q was granted again; %s; stop this work", e.Record.Key, e.newest())
}

// newest names the owner of the newest token. After a revocation there is none.
func (e *NotOwnedError) newest() string {
	if e.Record.Owner == "" {
		return fmt.Sprintf("newest token %d", e.Record.Token)
	}
	return fmt.Sprintf("%s has token %d", e.Record.Owner, e.Record.Token)
}

// by names the operator who ended the grant's term. That is the actor of the
// transfer after it, which need not be the newest.
func (e *NotOwnedError) by() string {
	for i := range len(e.Record.History) - 1 {
		if next := e.Record.History[i+1]; e.Record.History[i].Grant == e.Grant {
			return fmt.Sprintf(" by %s (%s)", next.Actor, next.Note)
		}
	}
	return ""
}

// Is makes every NotOwnedError match [ErrNotOwned].
func (e *NotOwnedError) Is(target error) bool { return target == ErrNotOwned }

// notOwned makes the refusal for grant g, with the reason that the record
// gives.
func notOwned(rec Record, g fence.Grant, now time.Time) *NotOwnedError {
	e := &NotOwnedError{Grant: g, Record: rec, Why: WhyUnknown, Now: now}
	term, known := rec.term(g)
	if !known {
		return e
	}
	e.Why = whyOver(term.Ended, term.State)
	return e
}

// whyOver says why a grant holds nothing. It decides by the end of its term and
// by the state that its transfer gave the key.
func whyOver(ended End, state State) Why {
	switch ended {
	case EndReleased, EndFailed:
		return WhyReleased
	case EndTakenOver:
		return WhyTakenOver
	case EndExpired, EndSuperseded:
		return WhySuperseded
	}
	// The newest transfer is a reservation or revocation, which never held the
	// key.
	if state != Held {
		return WhyReleased
	}
	return WhyExpired
}
