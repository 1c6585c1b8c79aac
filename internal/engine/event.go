package engine

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// EventKind names what happened.
type EventKind string

// The kinds of events. Package croft has the same names, and explains them.
const (
	Called      EventKind = "store_call"
	Acquired    EventKind = "acquired"
	Resumed     EventKind = "resumed"
	Refused     EventKind = "refused"
	Renewed     EventKind = "renewed"
	Reported    EventKind = "reported"
	RenewFailed EventKind = "renew_failed"
	LeaseLost   EventKind = "lost"
	Released    EventKind = "released"
	ReleaseLeft EventKind = "release_left"
	Unknown     EventKind = "unknown"
	Resolved    EventKind = "resolved"
	Unwatched   EventKind = "unwatched"
)

// Event is one thing that happened, for observers. Fields that do not concern
// its kind are zero.
type Event struct {
	Kind     EventKind
	Key      string
	Token    fence.Token
	Verb     tenure.Verb
	Outcome  Outcome
	Grant    fence.Grant // the grant of an attempt that was resolved without a caller
	Wait     time.Duration
	Cause    tenure.Cause
	TTL      time.Duration
	Margin   time.Duration
	Idle     time.Duration
	Failures int
	Loss     renewal.Loss
	Failed   bool
	Held     time.Duration
	Err      error

	Namespace string // of the keys in a call of the store
	Count     int    // requests in it with this namespace, verb and outcome
	Batch     int    // all requests in it
	Took      time.Duration
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
)

// The outcomes of an attempt without a caller.
const (
	WasGranted Outcome = "released" // it had been granted, and was released
	WasNot     Outcome = "never"    // it had not been granted, or its term was over
	WasLeft    Outcome = "left"     // unknown; if it was granted, it lapses
)

// OutcomeOf returns the outcome that an answer's error means.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return OutcomeOK
	case errors.Is(err, store.ErrUnknown):
		return OutcomeUnknown
	case errors.Is(err, tenure.ErrHeld):
		return OutcomeHeld
	case errors.Is(err, tenure.ErrNotOwned):
		return OutcomeNotOwned
	case errors.Is(err, fence.ErrInvalid):
		return OutcomeInvalid
	}
	return OutcomeUnknown
}

// EventsOf returns the events of one call of the store: one for each namespace,
// verb and outcome in its batch.
func EventsOf(b *Batch, answers []store.Answer, took time.Duration) (events []Event) {
	counts := map[Event]int{}
	for i, req := range b.Requests {
		e := Event{
			Kind: Called, Namespace: fence.Namespace(req.Key), Verb: req.Verb, Outcome: OutcomeUnknown,
			Batch: len(b.Requests), Took: took,
		}
		if len(answers) == len(b.Requests) {
			e.Outcome = OutcomeOf(answers[i].Err)
		}
		counts[e]++
	}
	for e, n := range counts {
		e.Count = n
		events = append(events, e)
	}
	return events
}

// known reports whether the store has decided the request.
func known(err error) bool { return OutcomeOf(err) != OutcomeUnknown }

// hopeless reports whether a call ends with an unknown answer at once. The
// store is certain that nothing was changed, and no other copy of the request
// may take effect. A call that waits, or that is about a held lease, goes on:
// the store may only be starting again.
func (c *Call) hopeless(err error) bool {
	if !store.IsFault(err) || c.attempt.doubt > 0 {
		return false
	}
	switch c.Request.Verb {
	case tenure.Acquire:
		return c.WaitFor == 0
	case tenure.Renew, tenure.Release, tenure.Report, tenure.Checkpoint:
		return false
	}
	return true
}
