package keep

import (
	"math"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Never is an instant that does not come.
const Never clock.Instant = math.MaxInt64

// Event is something that happened to a machine. Time passes by Tick; a machine that is stepped with any event at or after its Wake notices
// what is due.
type Event interface{ event() }

// The events of both machines.
type (
	// Tick says that time has passed. Jitter, from 0 up to 1, moves the next renewal; leases that tick together with one jitter stay together.
	Tick struct{ Jitter float64 }

	// Answered brings the store's answer to a request the machine asked for, once per request. Sent is the instant just before that
	// request was sent.
	Answered struct {
		Attempt int // as in the order to send; a Keeper has no use for it
		Sent    clock.Instant
		Answer  store.Answer
	}
)

// The events of a Keeper.
type (
	// Progressed says that the work has got somewhere.
	Progressed struct{}

	// Looked brings the record a Keeper asked to look at. Now is the store's time; a look that failed brings nothing and is not an event.
	Looked struct {
		Record tenure.Record
		Now    time.Time
	}

	// Ended says that the lease is over for a reason of the holder's own: Released or Closed.
	Ended struct{ Loss Loss }
)

// The events of a Waiter.
type (
	// Woken is the store's hint that the key may have changed.
	Woken struct{}

	// Watched says that hints will come from now on. Since says that there will also be one if the key has changed since it was last refused.
	Watched struct{ Since bool }

	// Unwatched says that hints will not come any more.
	Unwatched struct{}

	// Abandoned says that nobody waits any more: the caller's context has ended. Err is why.
	Abandoned struct{ Err error }
)

func (Tick) event()       {}
func (Answered) event()   {}
func (Progressed) event() {}
func (Looked) event()     {}
func (Ended) event()      {}
func (Woken) event()      {}
func (Watched) event()    {}
func (Unwatched) event()  {}
func (Abandoned) event()  {}

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
