//go:build !unix

package chaos

import (
	"errors"
	"os"
)

var errNoSignals = errors.New("this system cannot stop a process; run it on Linux or macOS")

func stopProcess(*os.Process) error   { return errNoSignals }
func resumeProcess(*os.Process) error { return nil }
func quitProcess(p *os.Process) error { return p.Kill() }
