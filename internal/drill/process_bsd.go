//go:build unix && !linux

package drill

import (
	"os/exec"
	"syscall"
)

// ownGroup gives the process a group of its own. If the director is killed, a
// worker sees its standard input end. A stopped worker gets SIGHUP, as every
// stopped process does when its group is orphaned.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
