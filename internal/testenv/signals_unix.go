//go:build unix

package testenv

import (
	"os"
	"syscall"
)

var terminate, pause, resume os.Signal = syscall.SIGTERM, syscall.SIGSTOP, syscall.SIGCONT
