//go:build !linux

package chaos

import "os/exec"

func dieTogether(*exec.Cmd) {}
