package croft

import (
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// EventKind names what happened. The kinds are also the messages of log
// records, and do not change.
type EventKind string

// The kinds of events, with the fields of [Event] that each sets besides Key
// and Token.
const (
	// EventCall: a call of the store ended. There is one event for each
	// Namespace, Verb and Outcome in it. Fields: Count, Batch, Took.
	EventCall EventKind = "store_call"
	// EventAcquired: a lease began. Fields: Wait, Cause, TTL.
	EventAcquired EventKind = "acquired"
	// EventResumed: a lease lost by time was taken up again. Fields: TTL.
	EventResumed EventKind = "resumed"
	// EventRefused: an acquire ended because it was not its turn. Fields: Wait,
	// Err.
	EventRefused EventKind = "refused"
	// EventRenewed: a renewal was confirmed. Fields: Margin, TTL, Idle.
	EventRenewed EventKind = "renewed"
	// EventReported: the work has reported progress, or saved a checkpoint.
	EventReported EventKind = "reported"
	// EventRenewFailed: a renewal interval passed without an answer. Fields:
	// Failures, Margin, Err.
	EventRenewFailed EventKind = "renew_failed"
	// EventLost: a lease ended in another way than by Release. Fields: Loss,
	// Err.
	EventLost EventKind = "lost"
	// EventReleased: a lease was released. Fields: Failed, Held.
	EventReleased EventKind = "released"
	// EventReleaseLeft: a release was not confirmed, and the key frees itself
	// at its deadline. Fields: Err.
	EventReleaseLeft EventKind = "release_left"
	// EventRaised: the fence was raised. Fields: Target.
	EventRaised EventKind = "raised"
	// EventRaiseRefused: the fence could not be raised. Fields: Target, Err.
	EventRaiseRefused EventKind = "raise_refused"
	// EventUnknown: a request has no known outcome yet. Fields: Verb, Err.
	EventUnknown EventKind = "unknown"
	// EventResolved: an unknown outcome became known. Fields: Verb, Outcome.
	EventResolved EventKind = "resolved"
	// EventUnwatched: the store gives no hints about a key, or no more, and the
	// client polls the key instead. Without a key, it concerns hints about
	// operators' acts. Fields: Err.
	EventUnwatched EventKind = "unwatched"
	// EventWorkFailed: one turn of a Loop or Lead failed, and it goes on.
	// Fields: Err.
	EventWorkFailed EventKind = "work_failed"
	// EventPaused: the client's timer was late by a tenth of a second or more.
	// The process was stopped or starved, or the machine was suspended. Fields:
	// Took, the delay.
	EventPaused EventKind = "paused"
)

// Event is something that happened in a client. Fields that its kind does not
// use are zero.
type Event struct {
	Kind  EventKind
	Key   string
	Token fence.Token

	Namespace string // the namespace of the keys in a call
	Verb      tenure.Verb
	Outcome   Outcome
	Count     int           // requests in the call with this namespace, verb and outcome
	Batch     int           // all requests in the call
	Took      time.Duration // how long the call or the pause took

	Wait   time.Duration // from the call of Acquire until the grant or the refusal
	Cause  tenure.Cause
	TTL    time.Duration
	Margin time.Duration // the time left until the local deadline
	// Idle is how long ago the work last made progress, or the lease began.
	Idle     time.Duration
	Failures int // renewal intervals in a row without an answer
	Loss     Loss
	Failed   bool          // the released term did not succeed
	Held     time.Duration // how long the lease was held
	Target   string        // the target of a guard
	Err      error
}

// Outcome is how a request ended.
type Outcome string

// The outcomes of a request. The last three are those of an acquire whose
// caller had left.
const (
	OutcomeOK       Outcome = "ok"
	OutcomeHeld     Outcome = "held"
	OutcomeNotOwned Outcome = "not_owned"
	OutcomeInvalid  Outcome = "invalid"
	OutcomeUnknown  Outcome = "unknown"
	OutcomeReleased Outcome = "released" // it had been granted, and was released
	OutcomeNever    Outcome = "never"    // it had not been granted, or its term was over
	OutcomeLeft     Outcome = "left"     // never known; if it was granted, it lapses
)
