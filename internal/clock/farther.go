package clock

import (
	"sync"
	"time"
)

// noise is by how much the wall clock may run ahead of the monotonic one before it counts: two readings of one moment are never quite the same.
const noise = 100 * time.Millisecond

// farther measures elapsed time where no clock is known to run during suspend: whatever the wall clock has gained on the monotonic
// clock is taken for time asleep. A wall clock set forward then ends leases early, which is safe; one set back changes nothing.
type farther struct {
	start time.Time
	mu    sync.Mutex
	lead  time.Duration // of the wall over the monotonic clock, when last looked at
	slept time.Duration
}

func newFarther() *farther { return &farther{start: time.Now()} }

// now takes a reading of both clocks in one time.Time, as time.Now returns it.
func (f *farther) now(reading time.Time) Instant {
	monotonic := reading.Sub(f.start)
	return f.fold(monotonic, reading.Round(0).Sub(f.start.Round(0)))
}

// fold takes the progress of the monotonic and of the wall clock since the start.
func (f *farther) fold(monotonic, wall time.Duration) Instant {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch lead := wall - monotonic; {
	case lead > f.lead+noise:
		f.slept += lead - f.lead
		f.lead = lead
	case lead < f.lead:
		f.lead = lead // set back: a sleep after this one must count in full
	}
	return Instant(monotonic + f.slept)
}
