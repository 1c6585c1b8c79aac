//go:build unix && !linux

package drill

import (
	"os/exec"
	"syscall"
)

// apart gives the process a group of its own. Should the director be killed, a worker sees its standard input end; a stopped one gets SIGHUP,
// as every stopped process whose group is orphaned.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
