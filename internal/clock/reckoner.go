package clock

import (
	"sync/atomic"
	"time"
)

const (
	// fixLasts is how long one reading of the clock is reckoned on from.
	fixLasts = 10 * time.Millisecond
	// fixWithin is how exactly a reading must be placed between two of Go's clock to be reckoned on from, and by how much the wall clock may then have moved
	// against the monotonic one.
	fixWithin = 50 * time.Microsecond
)

// reckoner tells the time of a clock that costs a system call, by Go's own clocks, which cost none: the clock and Go's monotonic clock go at one pace
// except in suspend, and a suspend shows, because the kernel moves the wall clock by it in the same step. Then, and at any step of the wall clock, and after fixLasts,
// the clock itself is read. What it tells is never ahead of the clock, and behind it by less than fixWithin: by so much one reading may go back after another.
type reckoner struct {
	read  func() (Instant, bool)
	start time.Time
	last  atomic.Pointer[fix]
}

// fix is one reading of the clock.
type fix struct {
	at        Instant
	monotonic time.Duration
	lead      time.Duration // of the wall clock over the monotonic one
}

func newReckoner(read func() (Instant, bool)) *reckoner {
	return &reckoner{read: read, start: time.Now()}
}

// now takes a reading of Go's clocks made just before, and reports false if the clock cannot be read.
func (r *reckoner) now(reading time.Time) (Instant, bool) {
	monotonic, lead := r.sort(reading)
	if f := r.last.Load(); f != nil {
		passed := monotonic - f.monotonic
		if passed >= 0 && passed < fixLasts && (lead-f.lead).Abs() < fixWithin {
			return f.at.Add(passed), true
		}
	}
	at, ok := r.read()
	if !ok {
		return 0, false
	}
	// A thread that was halted between the readings, or a machine that slept, does not know what the clock showed when.
	if after, lead2 := r.sort(time.Now()); after-monotonic < fixWithin && (lead2-lead).Abs() < fixWithin {
		r.last.Store(&fix{at: at, monotonic: after, lead: lead2})
	}
	return at, true
}

// sort takes the two clocks in one reading apart.
func (r *reckoner) sort(reading time.Time) (monotonic, lead time.Duration) {
	monotonic = reading.Sub(r.start)
	return monotonic, time.Duration(reading.UnixNano()) - monotonic
}
