//go:build linux || darwin

package history

import "golang.org/x/sys/unix"

// Now is the machine's boot clock in nanoseconds: the same for every process, whatever the wall clock does. It is read each time: what two processes write down is
// compared.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		panic("history: the boot clock cannot be read: " + err.Error())
	}
	return ts.Nano()
}
