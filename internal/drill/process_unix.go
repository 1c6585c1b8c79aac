//go:build unix

package drill

import "syscall"

// Supported is nil where processes can be stopped and continued.
var Supported error

// pause stops the process, as a suspended virtual machine, a debugger or a long
// garbage collection would.
func (w *worker) pause() error { return w.cmd.Process.Signal(syscall.SIGSTOP) }

// wake continues the process.
func (w *worker) wake() error { return w.cmd.Process.Signal(syscall.SIGCONT) }
