package clock

import "time"

// System returns the machine's own clock. On Linux and macOS that clock runs on
// during suspend. Elsewhere it is Go's monotonic clock plus whatever the wall
// clock has gained on it.
func System() Clock { return system{} }

type system struct{}

func (system) Now() Instant                { return elapsed() }
func (system) Timer(d time.Duration) Timer { return goTimer{time.NewTimer(d)} }

type goTimer struct{ t *time.Timer }

func (g goTimer) C() <-chan time.Time   { return g.t.C }
func (g goTimer) Stop()                 { g.t.Stop() }
func (g goTimer) Reset(d time.Duration) { g.t.Reset(d) }
