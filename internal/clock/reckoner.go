package clock

import (
	"sync/atomic"
	"time"
)

const (
	// fixLasts is how long one reading of the clock is used.
	fixLasts = 10 * time.Millisecond
	// fixWithin limits the error. The two readings of Go's clocks around a
	// reading of the clock may be at most this far apart. And the wall clock
	// may move at most this much against the monotonic one while the reading is
	// used.
	fixWithin = 50 * time.Microsecond
)

// reckoner computes the time of a clock whose reading costs a system call from
// Go's own clocks, which cost none. Both run at the same pace, except in
// suspend. A suspend shows, because the kernel moves the wall clock in the same
// step.
//
// So the clock itself is read only after fixLasts, and when the wall clock has
// moved against the monotonic one. The computed time is never ahead of the
// clock, and behind it by less than fixWithin. So a reading can be earlier than
// the one before it by that much.
type reckoner struct {
	read  func() (Instant, bool)
	start time.Time
	last  atomic.Pointer[fix]
}

// fix is one reading of the clock.
type fix struct {
	at        Instant
	monotonic time.Duration
	lead      time.Duration // how far the wall clock is ahead of the monotonic one
}

func newReckoner(read func() (Instant, bool)) *reckoner {
	return &reckoner{read: read, start: time.Now()}
}

// now takes a reading of Go's clocks from just before, and returns the clock's
// time. It returns false if the clock cannot be read.
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
	// If this thread was halted between the readings, or the machine slept, it
	// is not known which times belong together. Then do not keep the reading.
	if after, lead2 := r.sort(time.Now()); after-monotonic < fixWithin && (lead2-lead).Abs() < fixWithin {
		r.last.Store(&fix{at: at, monotonic: after, lead: lead2})
	}
	return at, true
}

// sort splits a reading into the monotonic clock and the wall clock's lead over
// it.
func (r *reckoner) sort(reading time.Time) (monotonic, lead time.Duration) {
	monotonic = reading.Sub(r.start)
	return monotonic, time.Duration(reading.UnixNano()) - monotonic
}
