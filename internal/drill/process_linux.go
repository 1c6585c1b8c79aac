package drill

import (
	"os/exec"
	"syscall"
)

// ownGroup gives the process a group of its own. If the director is killed, the
// kernel kills the worker, too, even if it is stopped.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
