package drill

import (
	"os/exec"
	"syscall"
)

// apart gives the process a group of its own. Should the director be killed, the worker is killed with it, even while it is stopped.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
