//go:build !linux

package overhttp

import (
	"syscall"
	"time"
)

// boundUnacknowledged does nothing here. The settle time must be longer than
// the system's own limits.
func boundUnacknowledged(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
