package supervise

import (
	"fmt"
	"syscall"
)

// Status is how a command ended: by exiting with Code, or by Signal.
type Status struct {
	Code   int
	Signal syscall.Signal // 0 if it exited
	Core   bool           // it left a core dump

	Overdue bool // the warden killed it, because the time given by AllowFor was up
}

// ExitCode is the status as a shell's exit code: the command's own code, or 128
// + the signal.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

func (s Status) String() string {
	switch {
	case s.Signal != 0 && s.Core:
		return fmt.Sprintf("killed by signal %d (%v), core dumped", int(s.Signal), s.Signal)
	case s.Signal != 0:
		return fmt.Sprintf("killed by signal %d (%v)", int(s.Signal), s.Signal)
	default:
		return fmt.Sprintf("exit status %d", s.Code)
	}
}
