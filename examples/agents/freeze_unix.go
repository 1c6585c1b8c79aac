//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// freeze stops this process in the middle of its work, as a closed laptop, an
// overloaded machine or a debugger would. It returns when another process lets
// it go on.
func freeze() error {
	// The kernel may need a moment to stop all threads. So wait for SIGCONT.
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-woken
	return nil
}

// untilStopped waits until the process is stopped.
func untilStopped(p *os.Process) error {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case status.Stopped():
			return nil
		default:
			return fmt.Errorf("the agent has ended (%d) before it was frozen", status.ExitStatus())
		}
	}
}

// wake lets a stopped process go on.
func wake(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
