//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// canStop says that processes can be stopped here.
const canStop = true

func pause(p *os.Process)  { _ = p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }

// own gives a command a process group of its own. Ctrl-C at the terminal then
// reaches only the hunter, which ends the command in order.
func own(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieTogether(cmd.SysProcAttr)
}

// endGroup kills a process and its group.
func endGroup(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// endLeftovers ends the processes that a test binary has left behind, and
// reports whether there were any. Helpers that clean up after a killed binary
// get grace to end by themselves.
func endLeftovers(group int, folder string, grace time.Duration) bool {
	for end := time.Now().Add(grace); ; time.Sleep(20 * time.Millisecond) {
		left := leftovers(group, folder)
		if len(left) == 0 {
			return false
		}
		if time.Now().Before(end) {
			continue
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return true
	}
}
