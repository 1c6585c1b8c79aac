package clock

import (
	"sync/atomic"
	"time"
)

// Process is a clock on Go's own clock and timers that can be suspended. It is
// for tests under testing/synctest, which controls Go's clock and timers but
// knows no suspend.
type Process struct {
	start time.Time
	slept atomic.Int64
}

// NewProcess makes a clock that begins now.
func NewProcess() *Process { return &Process{start: time.Now()} }

// Now returns the elapsed time, suspended time included.
func (p *Process) Now() Instant {
	return Instant(time.Since(p.start)).Add(time.Duration(p.slept.Load()))
}

// Timer returns one of Go's own timers.
func (p *Process) Timer(d time.Duration) Timer { return goTimer{time.NewTimer(d)} }

// Suspend lets elapsed time pass while timers stand still.
func (p *Process) Suspend(d time.Duration) { p.slept.Add(int64(d)) }
