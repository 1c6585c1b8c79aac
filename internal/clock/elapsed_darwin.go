package clock

import "golang.org/x/sys/unix"

// CLOCK_MONOTONIC_RAW counts through sleep on macOS. CLOCK_UPTIME_RAW, on which
// Go's own monotonic clock rests, does not.
const suspendAware = unix.CLOCK_MONOTONIC_RAW
