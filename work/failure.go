package work

import (
	"errors"
	"time"
)

// Final wraps a handler's error to say that trying again would not help. The
// item is then dead, even if attempts are left.
func Final(err error) error { return ending(err, Fail, 0, true) }

// RetryAfter wraps a handler's error to say when to try again: after d, instead
// of after the item's Backoff.
func RetryAfter(err error, d time.Duration) error { return ending(err, Fail, d, false) }

// GiveBack wraps the error of a handler that could not begin. The item waits
// again, for at least d, and the attempt does not count.
func GiveBack(err error, d time.Duration) error { return ending(err, Release, d, false) }

func ending(err error, verb Verb, delay time.Duration, final bool) error {
	if err == nil {
		return nil
	}
	return &endError{error: err, verb: verb, delay: min(max(delay, 0), MaxDelay), final: final}
}

// endError is a handler's error that also says how its attempt ends.
type endError struct {
	error
	verb  Verb
	delay time.Duration
	final bool
}

func (e *endError) Unwrap() error { return e.error }

// endOf returns the request that ends an attempt, given what its handler
// returned. It lacks the item's ID, token and secret.
func endOf(result Result, err error) Request {
	if err == nil {
		return Request{Verb: Complete, Result: result.Body, Effects: result.Effects}
	}
	end := Request{Verb: Fail, Error: Clip(err.Error())}
	if special := (*endError)(nil); errors.As(err, &special) {
		end.Verb, end.Delay, end.Final = special.verb, special.delay, special.final
	}
	return end
}
