package chaos

import (
	"os/exec"
	"syscall"
)

// dieTogether makes a child end with this process, however that ends: one that is stopped would not notice otherwise.
func dieTogether(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
