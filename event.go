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
	EventCall         EventKind = "store_call"    // a call of the store ended, once per Namespace, Verb and Outcome in it: Count, Batch, Took
	EventAcquired     EventKind = "acquired"      // a lease began: Wait, Cause, TTL
	EventResumed      EventKind = "resumed"       // a lease lost by time was taken up again: TTL
	EventRefused      EventKind = "refused"       // an acquire ended with "not your turn": Wait, Err
	EventRenewed      EventKind = "renewed"       // Margin: what was left until the local deadline when the renewal was confirmed; TTL, Idle
	EventReported     EventKind = "reported"      // the work has got somewhere
	EventRenewFailed  EventKind = "renew_failed"  // a renewal interval passed without an answer: Failures, Margin, Err
	EventLost         EventKind = "lost"          // a lease ended otherwise than by Release: Loss, Err
	EventReleased     EventKind = "released"      // a lease was given back: Failed, Held
	EventReleaseLeft  EventKind = "release_left"  // a release could not be confirmed; the key frees itself at its deadline: Err
	EventRaised       EventKind = "raised"        // the fence was raised: Target
	EventRaiseRefused EventKind = "raise_refused" // the fence could not be raised: Target, Err
	EventUnknown      EventKind = "unknown"       // a request's outcome is not known: Verb, Err
	EventResolved     EventKind = "resolved"      // an unknown outcome became known: Verb, Outcome
	EventUnwatched    EventKind = "unwatched"     // the store's hints about a key cannot be had or have ended; it is polled instead: Err. Without a key: of operators' acts
	EventWorkFailed   EventKind = "work_failed"   // one turn of a Loop failed, and it goes on: Err
)

// Event is one thing that happened in a client. Fields that do not concern its kind are zero.
type Event struct {
	Kind  EventKind
	Key   string
	Token fence.Token

	Namespace string // of the keys in a call
	Verb      tenure.Verb
	Outcome   Outcome
	Count     int           // requests with this namespace, verb and outcome in the call
	Batch     int           // all requests in the call
	Took      time.Duration // of the call

	Wait     time.Duration // between asking and being granted, or giving up
	Cause    tenure.Cause
	TTL      time.Duration
	Margin   time.Duration
	Idle     time.Duration // since the work was last known to have got somewhere; since the lease began if it never has
	Failures int           // renewal intervals in a row without an answer
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
	OutcomeReleased Outcome = "released" // of an abandoned acquire: it had been granted, and was released
	OutcomeNever    Outcome = "never"    // of an abandoned acquire: it had not been granted, or its term was over
	OutcomeLeft     Outcome = "left"     // of an abandoned acquire: not known to the end; if it was granted, it lapses
)
