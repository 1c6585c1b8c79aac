package clock

import "golang.org/x/sys/unix"

// CLOCK_BOOTTIME is CLOCK_MONOTONIC plus the time in suspend.
const suspendAware = unix.CLOCK_BOOTTIME
