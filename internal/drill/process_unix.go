//go:build unix

package drill

import "syscall"

// Supported is nil where processes can be stopped and continued.
var Supported error

// pause stops the process as a suspended virtual machine, a debugger or a long collection of garbage would.
func (w *worker) pause() error { return w.cmd.Process.Signal(syscall.SIGSTOP) }

// wake lets it go on as if nothing had happened.
func (w *worker) wake() error { return w.cmd.Process.Signal(syscall.SIGCONT) }
