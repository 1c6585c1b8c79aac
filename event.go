package croft

import (
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// EventKind names what happened. The names are also those of the log records, and stay as they are.
type EventKind string

// The kinds of events.
const (
	EventCall         EventKind = "store_call"    // a request was answered: Verb, Outcome, Took, Batch
	EventAcquired     EventKind = "acquired"      // a lease began: Wait, Cause
	EventRefused      EventKind = "refused"       // an acquire ended with "not your turn": Wait, Err
	EventRenewed      EventKind = "renewed"       // Margin: what was left until the local deadline when the renewal was confirmed
	EventRenewFailed  EventKind = "renew_failed"  // a renewal interval passed without an answer: Failures, Margin, Err
	EventLost         EventKind = "lost"          // a lease ended otherwise than by Release: Loss, Err
	EventReleased     EventKind = "released"      // a lease was given back: Failed, Held
	EventReleaseLeft  EventKind = "release_left"  // a release could not be confirmed; the key frees itself at its deadline: Err
	EventRaised       EventKind = "raised"        // the fence was raised: Target
	EventRaiseRefused EventKind = "raise_refused" // the fence could not be raised: Target, Err
	EventUnknown      EventKind = "unknown"       // a request's outcome is not known: Verb, Err
	EventResolved     EventKind = "resolved"      // an unknown outcome became known: Verb, Outcome
)

// Event is one thing that happened in a client. Fields that do not concern its kind are zero.
type Event struct {
	Kind  EventKind
	Key   string
	Token fence.Token

	Verb    tenure.Verb
	Outcome Outcome
	Took    time.Duration // of a store call, waiting for its batch included
	Batch   int           // requests in the same call

	Wait     time.Duration // between asking and being granted, or giving up
	Cause    tenure.Cause
	Margin   time.Duration
	Failures int // renewal intervals in a row without an answer
	Loss     Loss
	Failed   bool          // the released term did not succeed
	Held     time.Duration // how long the lease was held
	Target   string        // of a guard
	Err      error
}

// Outcome is how a request ended.
type Outcome string

// The outcomes of a request.
const (
	OutcomeOK       Outcome = "ok"
	OutcomeHeld     Outcome = "held"
	OutcomeNotOwned Outcome = "not_owned"
	OutcomeInvalid  Outcome = "invalid"
	OutcomeUnknown  Outcome = "unknown"
	OutcomeLeft     Outcome = "left" // of a resolution: nobody waits for it any more, the key frees itself
)
