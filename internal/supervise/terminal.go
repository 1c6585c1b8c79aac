//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, and whether it is lent to the command's
// group. It is nil if the process has none. It is not safe for concurrent use.
type terminal struct {
	file  *os.File
	own   int           // our process group
	modes *unix.Termios // as they were before it was first lent
	lent  bool          // the command's group is the foreground group, as far as we know
	ever  bool          // it was lent before
}

// openTerminal returns the controlling terminal, or nil.
func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: f, own: unix.Getpgrp()}
}

func (t *terminal) close() {
	if t != nil {
		_ = t.file.Close()
	}
}

// lendAtOnce reports whether the command should start in the foreground. Croft
// must be a foreground job that leads its own group, so it is not part of a
// script. It must read from the terminal. It must not write into a pipe, whose
// reader may need the terminal more (less does).
func (t *terminal) lendAtOnce(stdin, stdout *os.File) bool {
	if t == nil || stdin == nil || t.foreground() != t.own || t.own != os.Getpid() {
		return false
	}
	if group, err := unix.IoctlGetInt(int(stdin.Fd()), unix.TIOCGPGRP); err != nil || group != t.own {
		return false
	}
	if stdout != nil {
		if info, err := stdout.Stat(); err != nil || info.Mode()&os.ModeNamedPipe != 0 {
			return false
		}
	}
	t.remember()
	return true
}

// noteLent notes that the command was started in the foreground.
func (t *terminal) noteLent() { t.lent, t.ever = true, true }

// foreground returns the foreground group of the terminal, or 0 if there is
// none.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// lend gives the terminal to the command's group, if it belongs to our group.
// It reports whether the command's group has it now. It may have had it before:
// the command may be stopped more than once until it gets the terminal.
func (t *terminal) lend(group int) bool {
	if t == nil {
		return false
	}
	switch t.foreground() {
	case group:
		return true
	case t.own:
	default:
		return false
	}
	t.remember()
	if !t.set(group) {
		return false
	}
	t.noteLent()
	return true
}

// lendAgain lends the terminal after croft was stopped, if it was lent before.
// If the shell kept the terminal (bg), it is no longer ours to lend.
func (t *terminal) lendAgain(group int) {
	if t == nil || !t.ever {
		return
	}
	t.lent = t.lend(group)
}

// takeBack makes our group the foreground group again, if the terminal was
// lent, and reports whether it was. A command that was killed could not restore
// the terminal's modes, so takeBack does. A shell would do that, but the shell
// sees only our orderly exit.
func (t *terminal) takeBack(killed bool) (lent bool) {
	if t == nil || !t.lent {
		return false
	}
	t.lent = false
	t.set(t.own)
	if killed && t.modes != nil {
		withoutTTOU(func() { _ = unix.IoctlSetTermios(int(t.file.Fd()), setModes, t.modes) })
	}
	return true
}

func (t *terminal) remember() {
	if t.modes == nil {
		t.modes, _ = unix.IoctlGetTermios(int(t.file.Fd()), getModes)
	}
}

func (t *terminal) set(group int) (ok bool) {
	withoutTTOU(func() { ok = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) == nil })
	return ok
}
