// Package clock tells a holder the time that has elapsed, including the time
// during which the machine was suspended.
//
// Deadlines of leases are measured on it. Go's own monotonic clock stops during
// suspend on Linux, so a laptop that slept past the end of a lease would still
// believe in it.
//
// [System] is the machine's clock. It keeps its last reading behind an atomic
// pointer or a mutex, so that it is safe for concurrent use. An [Alarm] calls a
// function at a set time on one goroutine, which exists only while it is
// needed. [Manual] and [Process] are clocks for tests, which can be suspended.
package clock

import "time"

// Instant is a moment on a Clock: the time elapsed since some fixed point,
// suspend included. Instants of different clocks, machines or boots cannot be
// compared.
type Instant time.Duration

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Clock tells elapsed time and makes timers. All methods are safe for
// concurrent use.
type Clock interface {
	// Now returns the elapsed time, suspend included.
	Now() Instant
	// Timer returns a timer that fires once, about d from now on the process's
	// own timers. These may stand still during suspend. So a goroutine that
	// waits for an Instant must wait at most a second at a time, and check Now
	// each time.
	Timer(d time.Duration) Timer
}

// Timer is one pending wake-up.
type Timer interface {
	C() <-chan time.Time
	// Stop stops the timer. The timer may still fire.
	Stop()
}

// Resetter is a Timer that can be used again, after Stop and once its channel
// is empty. The timers of System and Process are Resetters.
type Resetter interface {
	Reset(d time.Duration)
}
