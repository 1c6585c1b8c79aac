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

// withoutTTOU does something to the terminal that the system would stop a background process for. The signal stays
// ignored afterwards, because os/signal cannot take that back; the command was started before.
func withoutTTOU(do func()) {
	signal.Ignore(syscall.SIGTTOU)
	do()
}

// stopSelf stops this process. By SIGSTOP whatever the signal was, since os/signal cannot give a caught signal its
// default effect back. It may return a moment before the signal acts.
func stopSelf(syscall.Signal) { _ = unix.Kill(unix.Getpid(), unix.SIGSTOP) }
