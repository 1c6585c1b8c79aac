//go:build linux || darwin

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

var (
	// extrapolated saves most of the system calls.
	extrapolated = newExtrapolator(suspended)
	// fallback is for kernels and sandboxes that refuse to read the clock.
	fallback = newWallGain()
)

func elapsed() Instant {
	now := time.Now()
	if i, ok := extrapolated.now(now); ok {
		return i
	}
	return fallback.now(now)
}

// suspended reads the clock that runs on during suspend.
func suspended() (Instant, bool) {
	var ts unix.Timespec
	if err := unix.ClockGettime(suspendAware, &ts); err != nil {
		return 0, false
	}
	return Instant(ts.Nano()), true
}
