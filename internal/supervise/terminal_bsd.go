//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	getModes = unix.TIOCGETA
	setModes = unix.TIOCSETA
)

// withoutTTOU runs do, for which the system would stop a background process by
// SIGTTOU. The signal stays ignored afterwards, because os/signal cannot undo
// that. The command is not affected: it has already been started.
func withoutTTOU(do func()) {
	signal.Ignore(syscall.SIGTTOU)
	do()
}

// ignoredMask is empty: Go cannot ask these systems.
func ignoredMask() uint64 { return 0 }

// stopSelf stops this process. It uses SIGSTOP whatever the signal was, because
// os/signal cannot restore the default effect of a caught signal. It may return
// a moment before the signal acts.
func stopSelf(syscall.Signal) { _ = unix.Kill(unix.Getpid(), unix.SIGSTOP) }
