package sqlite

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// stopSelf stops this process exactly here. It signals its own thread, because
// another thread might take a signal to the whole process later.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}
