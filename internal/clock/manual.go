package clock

import (
	"slices"
	"sync"
	"time"
)

// Manual has two clocks that tests move by hand: the elapsed time, which Now
// returns, and the process's own time, on which timers run. Advance moves both.
// Suspend moves only the first, as when a machine sleeps: it is later, but no
// timer has fired.
type Manual struct {
	mu      sync.Mutex
	elapsed Instant
	process Instant
	timers  []*manualTimer
}

// NewManual makes two clocks that stand at start.
func NewManual(start Instant) *Manual { return &Manual{elapsed: start, process: start} }

// Now returns the elapsed time.
func (m *Manual) Now() Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elapsed
}

// Timer returns a timer that fires when the process's own time has advanced by
// d.
func (m *Manual) Timer(d time.Duration) Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &manualTimer{clock: m, at: m.process.Add(max(d, 0)), c: make(chan time.Time, 1)}
	m.timers = append(m.timers, t)
	m.fire()
	return t
}

// Advance moves both clocks and fires the timers that are due.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elapsed, m.process = m.elapsed.Add(d), m.process.Add(d)
	m.fire()
}

// Suspend lets elapsed time pass while timers stand still.
func (m *Manual) Suspend(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elapsed = m.elapsed.Add(d)
}

func (m *Manual) fire() {
	m.timers = slices.DeleteFunc(m.timers, func(t *manualTimer) bool {
		if t.at > m.process {
			return false
		}
		t.c <- time.Unix(0, int64(m.process)) // never blocks, because a timer fires once
		return true
	})
}

type manualTimer struct {
	clock *Manual
	at    Instant
	c     chan time.Time
}

func (t *manualTimer) C() <-chan time.Time { return t.c }

func (t *manualTimer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.clock.timers = slices.DeleteFunc(t.clock.timers, func(other *manualTimer) bool { return other == t })
}
