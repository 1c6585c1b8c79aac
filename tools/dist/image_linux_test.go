package main

import (
	"os/exec"
	"syscall"
	"testing"
)

// inImage runs croft as a container of the image does.
func inImage(t *testing.T, image string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/usr/bin/croft", args...)
	cmd.Dir, cmd.Env = "/", []string{"CROFT_STORE=/var/lib/croft", "PATH=/usr/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: image, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	return cmd
}
