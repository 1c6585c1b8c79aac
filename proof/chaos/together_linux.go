package chaos

import (
	"os/exec"
	"syscall"
)

// dieTogether makes the kernel kill a child when this process ends. A stopped
// child would not notice otherwise.
func dieTogether(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
