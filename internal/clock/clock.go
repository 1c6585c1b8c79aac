// Package clock is the time a holder lives by: an elapsed time that goes on while the machine sleeps.
//
// Deadlines are measured on it because Go's own monotonic clock stops during suspend on Linux: a lease would look alive to a
// laptop that slept past its end.
package clock

import "time"

// Instant is a moment on a Clock: the time elapsed since some fixed point, suspend included. Instants of different clocks
// (or machines, or boots) cannot be compared.
type Instant time.Duration

// Add is the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub is the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Clock tells elapsed time and wakes sleepers. All methods are safe for concurrent use.
type Clock interface {
	// Now is the elapsed time, suspend included.
	Now() Instant
	// Timer fires on its channel once, about d from now on the process's own timers. These may stand still during suspend, so whoever waits
	// for an Instant checks Now when woken and waits at most a second at a time.
	Timer(d time.Duration) Timer
}

// Timer is one pending wake-up.
type Timer interface {
	C() <-chan time.Time
	// Stop lets go of the timer; it may fire all the same.
	Stop()
}

// Resetter is a Timer that can be used again: after Stop, and nothing of before is left in its channel. Those of System and Process are.
type Resetter interface {
	Reset(d time.Duration)
}
