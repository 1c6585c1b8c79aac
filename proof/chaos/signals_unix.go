//go:build unix

package chaos

import (
	"os"
	"syscall"
)

func stopProcess(p *os.Process) error   { return p.Signal(syscall.SIGSTOP) }
func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
func quitProcess(p *os.Process) error   { return p.Signal(syscall.SIGQUIT) }
