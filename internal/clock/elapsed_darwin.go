package clock

import "golang.org/x/sys/unix"

// CLOCK_MONOTONIC_RAW counts through sleep on macOS; CLOCK_UPTIME_RAW, which Go's own monotonic clock rests on, does not.
const suspendAware = unix.CLOCK_MONOTONIC_RAW
