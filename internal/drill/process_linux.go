package drill

import (
	"os/exec"
	"syscall"
)

// apart gives the process a group of its own. If the director is killed, the
// kernel kills the worker, too, even if it is stopped.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
