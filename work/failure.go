package work

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/internal/excerpt"
	"github.com/croft-dev/croft/internal/final"
)

// Final, RetryAfter and ReleaseFor make the error that a handler returns to say
// how its attempt ends. They do so without an error of the handler's, too, if
// err is nil. The item's Error then says that there was no reason. After
// ReleaseFor it still says why the attempt before has failed.

// Final says that trying again would not help. The item is then dead, even if
// attempts are left. It is the same as Final of package croft.
func Final(err error) error { return &final.Error{Err: err} }

// RetryAfter says when to try again: after d, instead of after the item's
// Backoff. With 0 the item is ready at once.
func RetryAfter(err error, d time.Duration) error {
	return ending(err, Fail, max(d, time.Microsecond)) // a request with delay 0 means the Backoff
}

// ReleaseFor says that the handler could not begin. The item is released and
// waits again, for at least d, and the attempt does not count.
func ReleaseFor(err error, d time.Duration) error { return ending(err, Release, d) }

func ending(err error, verb Verb, delay time.Duration) error {
	if err == nil {
		err = errNoReason
	}
	return &endError{error: err, verb: verb, delay: min(max(delay, 0), MaxDelay)}
}

// errNoReason is the error of a handler that ends an attempt without one.
var errNoReason = errors.New("the handler gave no reason")

// endError is a handler's error that also says how its attempt ends.
type endError struct {
	error
	verb  Verb
	delay time.Duration
}

func (e *endError) Unwrap() error { return e.error }

// endOf returns the request that ends an attempt, given what its handler
// returned. It lacks the item's ID, token and secret.
func endOf(result Result, err error) Request {
	if err == nil {
		return Request{Verb: Complete, Result: result.Body, Effects: result.Effects}
	}
	end := Request{Verb: Fail, Error: excerpt.Of(err.Error(), MaxError)}
	var special *endError
	switch last, isFinal := final.Of(err); {
	case isFinal && (!errors.As(err, &special) || errors.As(last.Err, &special)): // the outer one counts
		end.Final = true
	case errors.As(err, &special):
		end.Verb, end.Delay = special.verb, special.delay
	}
	if end.Verb == Release && end.Error == errNoReason.Error() {
		end.Error = "" // keeps the reason before
	}
	return end
}
