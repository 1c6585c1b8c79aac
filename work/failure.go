package work

import (
	"errors"
	"time"
)

// Final makes an error of a handler after which the item is dead, whatever its attempts: trying again would not help.
func Final(err error) error { return ending(err, Fail, 0, true) }

// RetryAfter makes an error of a handler after which the item is tried again in d, instead of after its Backoff.
func RetryAfter(err error, d time.Duration) error { return ending(err, Fail, d, false) }

// GiveBack makes an error of a handler that could not begin: the item waits again, for at least d, and the attempt does not count.
func GiveBack(err error, d time.Duration) error { return ending(err, Release, d, false) }

func ending(err error, verb Verb, delay time.Duration, final bool) error {
	if err == nil {
		return nil
	}
	return &endError{error: err, verb: verb, delay: min(max(delay, 0), MaxDelay), final: final}
}

// endError says how an attempt ends.
type endError struct {
	error
	verb  Verb
	delay time.Duration
	final bool
}

func (e *endError) Unwrap() error { return e.error }

// endOf is the request that ends an attempt whose handler has returned: it lacks only who asks.
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
