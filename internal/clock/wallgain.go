package clock

import (
	"sync"
	"time"
)

// noise is how far the wall clock may run ahead of the monotonic one before it
// counts as sleep. Two readings of one moment are never quite the same.
const noise = 100 * time.Millisecond

// wallGain measures elapsed time on systems without a clock that runs on during
// suspend. It takes whatever the wall clock gains on the monotonic clock for
// time asleep. If the wall clock is set forward, leases end early, which is
// safe. If it is set back, nothing changes.
type wallGain struct {
	start time.Time
	mu    sync.Mutex
	// How far the wall clock was ahead of the monotonic one at the last
	// reading.
	lead  time.Duration
	slept time.Duration
}

func newWallGain() *wallGain { return &wallGain{start: time.Now()} }

// now takes a reading of both clocks, as time.Now returns it.
func (f *wallGain) now(reading time.Time) Instant {
	monotonic := reading.Sub(f.start)
	return f.fold(monotonic, reading.Round(0).Sub(f.start.Round(0)))
}

// fold takes how far the monotonic and the wall clock have come since the
// start.
func (f *wallGain) fold(monotonic, wall time.Duration) Instant {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch lead := wall - monotonic; {
	case lead > f.lead+noise:
		f.slept += lead - f.lead
		f.lead = lead
	case lead < f.lead:
		// The wall clock was set back: a sleep after that must count in full.
		f.lead = lead
	}
	return Instant(monotonic + f.slept)
}
