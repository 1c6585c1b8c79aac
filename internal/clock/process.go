package clock

import (
	"sync/atomic"
	"time"
)

// Process runs on Go's own clock and timers, and sleeps on command. It is for tests under testing/synctest, whose time Go's clock
// and timers follow: Suspend is the part of a sleep that those cannot show.
type Process struct {
	start time.Time
	slept atomic.Int64
}

// NewProcess makes a clock that begins now.
func NewProcess() *Process { return &Process{start: time.Now()} }

// Now is the elapsed time, the suspended time included.
func (p *Process) Now() Instant {
	return Instant(time.Since(p.start)).Add(time.Duration(p.slept.Load()))
}

// Timer is one of Go's own timers.
func (p *Process) Timer(d time.Duration) Timer { return goTimer{time.NewTimer(d)} }

// Suspend lets elapsed time pass while timers stand still.
func (p *Process) Suspend(d time.Duration) { p.slept.Add(int64(d)) }
