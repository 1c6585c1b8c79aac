//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import (
	"os/signal"
	"syscall"
)

// ignored returns the signals that this process ignores.
//
// Of the signals that were ignored at start, os/signal knows only SIGHUP and
// SIGINT. The Go runtime also leaves SIGTSTP, SIGTTIN, SIGTTOU and SIGCONT as
// they were, but only the system can tell. It resets all others.
func ignored() map[syscall.Signal]bool {
	set := make(map[syscall.Signal]bool)
	mask := ignoredMask()
	for sig := syscall.Signal(1); sig < 32; sig++ {
		set[sig] = signal.Ignored(sig) || mask>>(sig-1)&1 == 1
	}
	return set
}
