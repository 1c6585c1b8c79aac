//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopped makes croft and its command one job. A stop from the terminal stops
// croft, too, so that the shell gets its prompt back and fg continues both.
// Meanwhile croft renews no lease, which is right: the command does not run.
func (c *Child) stopped(sig syscall.Signal) {
	wantsTerminal := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	if !wantsTerminal && sig != syscall.SIGTSTP {
		return // SIGSTOP: somebody stopped the command alone, by Freeze or by hand
	}
	c.mu.Lock()
	if wantsTerminal && c.tty.lend(c.body.id()) {
		c.mu.Unlock()
		c.wake()
		return
	}
	if c.aside || orphaned() {
		// No shell would ever continue croft, or the command alone. In such a
		// case the system itself stops no process from the terminal. It stopped
		// the command only because the command's own parent is in the session.
		// So undo the stop. A command that wanted the terminal also gets
		// SIGHUP, as a stopped group does when it loses its shell.
		c.mu.Unlock()
		if wantsTerminal {
			_ = c.body.signal(syscall.SIGHUP)
		}
		c.wake()
		return
	}
	lent := c.tty.takeBack(false)
	c.mu.Unlock()

	if sig == syscall.SIGTSTP {
		signal.Ignore(sig)
		if lent {
			// The rest of our job (a pipeline, a script) was not in the
			// foreground, so it did not get the terminal's signal.
			_ = unix.Kill(0, sig)
		}
	}
	stopSelf(sig)
	// Here croft sleeps until it is continued.
	if sig == syscall.SIGTSTP && c.passesStop {
		signal.Notify(c.signals, sig)
	}
	c.continued()
}

// continued is called when croft itself was continued, by fg, bg or kill.
func (c *Child) continued() {
	if c.may != nil && !c.may() {
		c.mu.Lock()
		c.held = true
		c.mu.Unlock()
		return
	}
	c.resume()
}

// resume continues the command, in the foreground if croft is.
func (c *Child) resume() {
	c.mu.Lock()
	c.tty.lendAgain(c.body.id())
	c.mu.Unlock()
	c.wake()
}

// wake continues the command, unless it is frozen. Then Thaw continues it.
func (c *Child) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = c.frozen
	if !c.held {
		_ = c.body.signal(syscall.SIGCONT)
	}
}

// orphaned reports whether no process in this session could continue our group.
func orphaned() bool {
	parent := unix.Getppid()
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	theirs, err := unix.Getsid(parent)
	return err != nil || theirs != session
}
