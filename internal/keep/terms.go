package keep

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Loss says why a lease ended.
type Loss string

// The reasons for which a lease ends.
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

// Terms are what a lease is kept by. All but TTL and MaxFailures may be zero.
type Terms struct {
	TTL         time.Duration
	StallAfter  time.Duration // withhold renewal when the work has reported nothing for so long
	MaxHold     time.Duration // end it so long after the grant
	Notice      time.Duration // end it so long before the local deadline
	MaxFailures int           // end it after so many renewal intervals in a row without an answer
}

// Margin is by how much the local deadline comes before the store's: room for clocks whose rates differ.
func (t Terms) Margin() time.Duration { return t.TTL / 10 }

// Interval is the time between renewals: a third of the TTL, and at most half of what is left before the notice.
func (t Terms) Interval() time.Duration {
	return max(min(t.TTL/3, (t.TTL-t.Margin()-t.Notice)/2), time.Millisecond)
}

// Until is the local deadline that a store's answer gives: the TTL counts from just before the request was first sent, and what the store says is
// left from just before the copy of it that was answered, so that neither can end after the store's own deadline.
func (t Terms) Until(first, sent clock.Instant, a store.Answer) clock.Instant {
	until := first.Add(t.TTL)
	if !a.Now.IsZero() {
		until = min(until, sent.Add(a.Record.Deadline.Sub(a.Now)))
	}
	return until.Add(-t.Margin())
}

// LossOf reads from a refusal why the lease is over.
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
			return Expired // the store has forgotten it: nobody else is known to have been granted
		}
	}
	return Superseded
}

// notOwned finds the store's "not owned" in an answer, or nil.
func notOwned(a store.Answer) *tenure.NotOwnedError {
	var refusal *tenure.NotOwnedError
	if errors.As(a.Err, &refusal) {
		return refusal
	}
	return nil
}
