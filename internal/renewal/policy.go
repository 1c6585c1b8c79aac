package renewal

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Loss says why a lease ended.
type Loss string

// The reasons for which a lease ends. Package croft has the same names and
// explains them.
const (
	Superseded  Loss = "superseded"
	Expired     Loss = "expired"
	TakenOver   Loss = "taken_over"
	Released    Loss = "released"
	Unreachable Loss = "unreachable"
	Stalled     Loss = "stalled"
	HeldTooLong Loss = "held_too_long"
	Closed      Loss = "closed"
)

// A Policy says how a lease is kept. All fields but TTL and MaxFailures may be
// zero.
type Policy struct {
	TTL         time.Duration
	StallAfter  time.Duration // withhold renewals after so long without progress
	MaxHold     time.Duration // end the lease so long after the grant
	Notice      time.Duration // end the lease so long before the local deadline
	MaxFailures int           // end the lease after so many failed renewals in a row
}

// Check reports a policy that no lease can be kept by.
func (p Policy) Check() error {
	for _, d := range []struct {
		name string
		d    time.Duration
		most time.Duration
	}{
		{"StallAfter", p.StallAfter, math.MaxInt64},
		{"MaxHold", p.MaxHold, math.MaxInt64},
		{"Notice", p.Notice, p.TTL / 2},
	} {
		if d.d < 0 || d.d > d.most {
			return fmt.Errorf("%w %s %s: it must be between 0 and %s", fence.ErrInvalid, d.name, d.d, d.most)
		}
	}
	if p.MaxFailures < 0 {
		return fmt.Errorf("%w MaxFailures %d: it must be 1 or more, or 0 for the default of 3",
			fence.ErrInvalid, p.MaxFailures)
	}
	return nil
}

// Margin is how much earlier than the store's deadline the local one is. It
// makes room for clocks whose rates differ.
func (p Policy) Margin() time.Duration { return p.TTL / 10 }

// Interval is the time between renewals: a third of the TTL, but at most half
// of the time until the context would end.
func (p Policy) Interval() time.Duration {
	return max(min(p.TTL/3, (p.TTL-p.Margin()-p.Notice)/2), time.Millisecond)
}

// Fits reports whether a lease can be kept with this TTL: Notice takes at most
// half of it.
func (p Policy) Fits(ttl time.Duration) bool { return p.Notice <= ttl/2 }

// with returns the policy with the TTL of a record. If it does not fit, the
// policy stays as it is.
func (p Policy) with(ttl time.Duration) Policy {
	if ttl > 0 && p.Fits(ttl) {
		p.TTL = ttl
	}
	return p
}

// Until computes the local deadline from a store's answer. It is the earlier of
// two times, minus the margin. One is the TTL of the record, counted from just
// before the request was first sent. The other is the remaining time by the
// store's clock, counted from just before the answered copy was sent. Neither
// can lie after the store's own deadline.
func (p Policy) Until(first, sent clock.Instant, a store.Answer) clock.Instant {
	if a.Record.TTL > 0 { // another process may have changed it
		p.TTL = a.Record.TTL
	}
	until := first.Add(p.TTL)
	if !a.Now.IsZero() {
		until = min(until, sent.Add(a.Record.Deadline.Sub(a.Now)))
	}
	return until.Add(-p.Margin())
}

// LossOf returns the loss that a refusal of the store means.
func LossOf(refusal *tenure.NotOwnedError) Loss {
	switch refusal.Why {
	case tenure.WhyTakenOver:
		return TakenOver
	case tenure.WhyReleased:
		return Released
	case tenure.WhyExpired:
		return Expired
	case tenure.WhyUnknown:
		if refusal.Record.IsZero() {
			// The store has forgotten the lease. As far as it knows, nobody
			// else was granted the key.
			return Expired
		}
	}
	return Superseded
}

// notOwned returns the NotOwnedError in an answer, or nil.
func notOwned(a store.Answer) *tenure.NotOwnedError {
	var refusal *tenure.NotOwnedError
	if errors.As(a.Err, &refusal) {
		return refusal
	}
	return nil
}
