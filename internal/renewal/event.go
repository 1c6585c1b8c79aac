package renewal

import (
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Never is an instant that does not come.
const Never = clock.Never

// Event is something that happened to a lease. A Renewer that gets any event at
// or after its Wake first notices whether the lease is over.
type Event interface{ event() }

// The events.
type (
	// Tick says that time has passed. Jitter, from 0 up to 1, moves the next
	// renewal. Leases that tick together with the same jitter stay together.
	Tick struct{ Jitter float64 }

	// Answered brings the store's answer to one sending of a renewal. Sent is
	// the instant just before that sending.
	Answered struct {
		Sent   clock.Instant
		Answer store.Answer
	}

	// Progressed says that the work has made progress.
	Progressed struct{}

	// Looked brings the record that the Renewer asked to look at. Now is the
	// store's time. A look that failed is not an event.
	Looked struct {
		Record tenure.Record
		Now    time.Time
	}

	// Doubted says that the key may have been given to another: renew out of
	// turn. Once says that this happens once in a lease's life, so that no
	// pause has to follow.
	Doubted struct{ Once bool }

	// Ended says that the holder has ended the lease: the loss is Released or
	// Closed.
	Ended struct{ Loss Loss }
)

func (Tick) event()       {}
func (Answered) event()   {}
func (Progressed) event() {}
func (Looked) event()     {}
func (Doubted) event()    {}
func (Ended) event()      {}

// After returns i + d, or Never if that is out of range.
func After(i clock.Instant, d time.Duration) clock.Instant {
	if d >= time.Duration(Never-max(i, 0)) {
		return Never
	}
	return i.Add(d)
}

// Spread scales d by a factor between low and high. jitter, from 0 up to 1,
// chooses it.
func Spread(d time.Duration, low, high, jitter float64) time.Duration {
	return time.Duration(float64(d) * (low + (high-low)*jitter))
}
