package clock

import (
	"sync/atomic"
	"time"
)

const (
	// anchorLasts is how long one reading of the clock is used.
	anchorLasts = 10 * time.Millisecond
	// anchorWithin limits the error. The two readings of Go's clocks around a
	// reading of the clock may be at most this far apart. And the wall clock
	// may move at most this much against the monotonic one while the reading is
	// used.
	anchorWithin = 50 * time.Microsecond
)

// extrapolator computes the time of a clock whose reading costs a system call
// from Go's own clocks, which cost none. Both run at the same pace, except in
// suspend. A suspend shows, because the kernel moves the wall clock in the same
// step.
//
// So the clock itself is read only after anchorLasts, and when the wall clock
// has moved against the monotonic one. The computed time is never ahead of the
// clock, and behind it by less than anchorWithin. So a reading can be earlier
// than the one before it by that much.
type extrapolator struct {
	read  func() (Instant, bool)
	start time.Time
	last  atomic.Pointer[anchor]
}

// anchor is one reading of the clock.
type anchor struct {
	at        Instant
	monotonic time.Duration
	lead      time.Duration // how far the wall clock is ahead of the monotonic one
}

func newExtrapolator(read func() (Instant, bool)) *extrapolator {
	return &extrapolator{read: read, start: time.Now()}
}

// now takes a reading of Go's clocks from just before, and returns the clock's
// time. It returns false if the clock cannot be read.
func (r *extrapolator) now(reading time.Time) (Instant, bool) {
	monotonic, lead := r.split(reading)
	if f := r.last.Load(); f != nil {
		passed := monotonic - f.monotonic
		if passed >= 0 && passed < anchorLasts && (lead-f.lead).Abs() < anchorWithin {
			return f.at.Add(passed), true
		}
	}
	at, ok := r.read()
	if !ok {
		return 0, false
	}
	// If this thread was halted between the readings, or the machine slept, it
	// is not known which times belong together. Then do not keep the reading.
	if after, lead2 := r.split(time.Now()); after-monotonic < anchorWithin && (lead2-lead).Abs() < anchorWithin {
		r.last.Store(&anchor{at: at, monotonic: after, lead: lead2})
	}
	return at, true
}

// split divides a reading into the monotonic clock and the wall clock's lead
// over it.
func (r *extrapolator) split(reading time.Time) (monotonic, lead time.Duration) {
	monotonic = reading.Sub(r.start)
	return monotonic, time.Duration(reading.UnixNano()) - monotonic
}
