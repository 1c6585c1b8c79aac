//go:build unix && !linux

package sqlite

import (
	"os"
	"syscall"
	"time"
)

// stopSelf stops this process about here. Another thread may take the signal a
// moment later.
func stopSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	time.Sleep(500 * time.Millisecond)
}
