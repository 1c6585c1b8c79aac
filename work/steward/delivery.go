package steward

import (
	"context"
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/excerpt"
	"github.com/croft-dev/croft/work"
)

// DefaultDeliveries is how often an effect is tried before it is given up.
const DefaultDeliveries = 20

// Deliverer delivers effects to one destination. Several goroutines may call it
// at once.
//
// Deliver returns nil if the receiver has the effect. After any error it is
// unknown whether the receiver has it, unless Deliver says more with
// [Undelivered], [UndeliveredFor], [Busy] or [Refused]. The dispatcher sends an
// unknown effect again, under the same Idempotency-Key, unless it may be sent
// only once.
type Deliverer interface {
	Deliver(ctx context.Context, e work.Effect) error
}

// Func is a Deliverer that calls a Go function.
type Func func(ctx context.Context, e work.Effect) error

// Deliver calls the function.
func (f Func) Deliver(ctx context.Context, e work.Effect) error { return f(ctx, e) }

// Undelivered, UndeliveredFor, Busy and Refused make the error by which Deliver
// tells the fate of an effect. They make one for a nil err, too: the effect
// then counts as not delivered, and its Error says that there was no reason.

// Undelivered wraps an error of Deliver to say that the receiver certainly does
// not have the effect. It may be sent again.
func Undelivered(err error) error { return verdict(err, notDelivered, 0) }

// UndeliveredFor is Undelivered, and the next attempt waits for at least d.
func UndeliveredFor(err error, d time.Duration) error { return verdict(err, notDelivered, d) }

// Busy is UndeliveredFor, and the receiver asks for a pause: for that long, and
// at most an hour, the dispatcher sends it nothing else.
func Busy(err error, d time.Duration) error {
	v := verdict(err, notDelivered, d)
	v.busy = true
	return v
}

// Refused wraps an error of Deliver to say that the receiver does not have the
// effect and never will. It is not sent again.
func Refused(err error) error { return verdict(err, refused, 0) }

// outcome is what Deliver says about one delivery.
type outcome int

const (
	delivered outcome = iota
	notDelivered
	refused
	unknown
)

type verdictError struct {
	error
	outcome outcome
	delay   time.Duration
	busy    bool // nothing else shall be sent for delay
}

func (e *verdictError) Unwrap() error { return e.error }

func verdict(err error, o outcome, d time.Duration) *verdictError {
	if err == nil {
		err = errNoReason
	}
	return &verdictError{error: err, outcome: o, delay: min(max(d, 0), work.MaxDelay)}
}

var errNoReason = errors.New("the deliverer gave no reason")

// outcomeOf returns what an error of Deliver says about the delivery, and for
// how long the receiver wants nothing more.
func outcomeOf(err error) (known outcome, pause time.Duration) {
	v := (*verdictError)(nil)
	switch {
	case err == nil:
		return delivered, 0
	case !errors.As(err, &v):
		return unknown, 0
	case v.busy:
		return v.outcome, v.delay
	}
	return v.outcome, 0
}

// settlement decides what becomes of an effect after a delivery. It is a pure
// function of the effect as it was taken, the error of Deliver, and how often
// an effect may be tried.
func settlement(e work.Effect, err error, stamp fence.Stamp, deliveries int) work.Settlement {
	s := work.Settlement{Effect: e.EffectID, Attempt: e.Attempts, Stamp: stamp}
	known, delay := unknown, time.Duration(0)
	v := (*verdictError)(nil)
	switch {
	case err == nil:
		known = delivered
	case errors.As(err, &v):
		known, delay = v.outcome, v.delay
	}
	if err != nil {
		s.Error = excerpt.Of(err.Error(), work.MaxError)
	}
	last := e.Attempts >= deliveries
	switch {
	case known == delivered:
		s.State = work.Sent
	case known == refused, known == notDelivered && last:
		s.State = work.Failed
	case known == unknown && (e.AtMostOnce || last):
		s.State = work.Unknown // an operator must find out, not the dispatcher by trying again
	default:
		s.State, s.Delay = work.Pending, max(delay, work.Backoff(e.Item, e.Attempts))
	}
	return s
}
