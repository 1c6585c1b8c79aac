package history

import "golang.org/x/sys/unix"

const bootClock = unix.CLOCK_MONOTONIC_RAW
