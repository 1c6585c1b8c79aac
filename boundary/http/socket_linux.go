package httpfence

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// boundUnacknowledged bounds how long the kernel goes on trying to deliver what was sent, also on behalf of a process that has been stopped or has died: half of the settle time, so
// that what a dead network held back does not arrive when it is up again.
func boundUnacknowledged(settle time.Duration) func(network, address string, c syscall.RawConn) error {
	ms := min(max(settle/2, time.Millisecond), 5*time.Minute).Milliseconds()
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(ms))
		}); err != nil {
			return err
		}
		return failed
	}
}
