package keep

import (
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Never is an instant that does not come.
const Never = clock.Never

// Event is something that happened to a lease. Time passes by Tick. A Keeper
// that is stepped with any event at or after its Wake notices what is due.
type Event interface{ event() }

// The events.
type (
	// Tick says that time has passed. Jitter, from 0 up to 1, moves the next renewal; leases that tick together with one jitter stay together.
	Tick struct{ Jitter float64 }

	// Answered brings the store's answer to a renewal, once for each. Sent is
	// the instant just before it was sent.
	Answered struct {
		Sent   clock.Instant
		Answer store.Answer
	}

	// Progressed says that the work has got somewhere.
	Progressed struct{}

	// Looked brings the record a Keeper asked to look at. Now is the store's time; a look that failed brings nothing and is not an event.
	Looked struct {
		Record tenure.Record
		Now    time.Time
	}

	// Doubted says that the key may be another's by now: ask the store.
	Doubted struct{}

	// Ended says that the lease is over for a reason of the holder's own: Released or Closed.
	Ended struct{ Loss Loss }
)

func (Tick) event()       {}
func (Answered) event()   {}
func (Progressed) event() {}
func (Looked) event()     {}
func (Doubted) event()    {}
func (Ended) event()      {}

// After is i + d, or Never if that is out of reach.
func After(i clock.Instant, d time.Duration) clock.Instant {
	if d >= time.Duration(Never-max(i, 0)) {
		return Never
	}
	return i.Add(d)
}

// Spread scales d by a factor from low to high.
func Spread(d time.Duration, low, high, jitter float64) time.Duration {
	return time.Duration(float64(d) * (low + (high-low)*jitter))
}
