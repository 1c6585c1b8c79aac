//go:build linux || darwin

package history

import "golang.org/x/sys/unix"

// Now returns the machine's boot clock in nanoseconds. It is the same for all
// processes, and nobody can set it. It is read anew each time, because Check
// compares the times of different processes.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		panic("history: the boot clock cannot be read: " + err.Error())
	}
	return ts.Nano()
}
