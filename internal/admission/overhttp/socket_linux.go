package overhttp

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// boundUnacknowledged bounds how long the kernel tries to deliver data that was
// sent, also for a process that was stopped or has died. The bound is half of
// the settle time. So data that a dead network held back does not arrive when
// the network is back.
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
