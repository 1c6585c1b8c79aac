//go:build !linux

package httpfence

import (
	"syscall"
	"time"
)

// boundUnacknowledged does nothing here: the system's own limits count, and the settle time must be longer than those.
func boundUnacknowledged(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
