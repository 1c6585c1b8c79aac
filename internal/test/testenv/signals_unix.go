//go:build unix

package testenv

import (
	"os"
	"syscall"
)

var terminate, abandon, pause, resume os.Signal = syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGSTOP, syscall.SIGCONT
