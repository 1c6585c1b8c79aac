package clock

import "time"

// System is the machine's own clock: one that runs during suspend where the system has one (Linux, macOS), and elsewhere
// whichever of Go's monotonic and wall clocks has gone further.
func System() Clock { return system{} }

type system struct{}

func (system) Now() Instant                { return elapsed() }
func (system) Timer(d time.Duration) Timer { return goTimer{time.NewTimer(d)} }

type goTimer struct{ t *time.Timer }

func (g goTimer) C() <-chan time.Time   { return g.t.C }
func (g goTimer) Stop()                 { g.t.Stop() }
func (g goTimer) Reset(d time.Duration) { g.t.Reset(d) }
