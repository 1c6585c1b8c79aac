//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal and whether it is lent to the command's group. The nil *terminal is a process
// without one. Not safe for concurrent use.
type terminal struct {
	file  *os.File
	own   int           // our process group
	modes *unix.Termios // as they were when it was first lent
	lent  bool          // the command's group is the foreground group, as far as we know
	ever  bool          // it was, once
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

// lendAtOnce says whether the command should start in the foreground: if we are a foreground job of our own (leader of
// it, so not part of a script) that reads from the terminal and does not write into a pipe, whose reader may
// need the terminal more (less does).
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

// foreground is the group that has the terminal; 0 if there is none.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// lend gives the terminal to the command's group, if it is ours. It says whether that group has it now, which may
// have been so before: the command may be stopped more than once for want of it until it has it.
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

// lendAgain does so after we were stopped, if the command had it before. If the shell kept the terminal to itself (bg), it is no longer ours.
func (t *terminal) lendAgain(group int) {
	if t == nil || !t.ever {
		return
	}
	t.lent = t.lend(group)
}

// takeBack makes our group the foreground group again, if we had lent the terminal, which it returns. A command that was killed had
// no chance to restore the terminal's modes; a shell would do that for it, but the shell sees only our orderly exit.
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
