package supervise

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinel errors.
var (
	// ErrUnsupported says that this system cannot run a supervised command.
	ErrUnsupported = errors.New("supervise: running a command under a lease is not supported on this system; " +
		"use acquire, renew and release around it")

	// ErrNoWarden says that the program does not call MaybeWarden. Without it
	// Start would run the program itself again instead of a warden.
	ErrNoWarden = errors.New("supervise: MaybeWarden was not called; call it first thing in main (and in TestMain)")

	// ErrWardenLost says that the warden was killed, so the command's exit
	// status is lost. Everything it watched has been killed.
	ErrWardenLost = errors.New("supervise: the warden was killed before it could report how the command ended; " +
		"the command was killed with it")

	// ErrOver says that the command has ended and can no longer be signalled.
	ErrOver = errors.New("supervise: the command has ended")
)

// Exit codes of a command that could not be started, as in shells.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

// StartError says why a command could not be started. Nothing of it runs.
type StartError struct {
	Name string // the command as given
	Code int    // a shell's exit code: CodeNotFound or CodeNotExecutable
	Why  string // the reason, and advice
	Err  error  // the system's error, if there was one
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot run %q: %s", e.Name, e.Why) }

// Unwrap returns the system's error.
func (e *StartError) Unwrap() error { return e.Err }

// ExitCode is a shell's exit code: 127 if there is no such command, 126
// otherwise.
func (e *StartError) ExitCode() int { return e.Code }

// SurvivorsError names the processes of the command that could not be stopped
// or killed.
type SurvivorsError struct {
	PIDs []int // as far as known; empty if the system hides them
	Err  error // EPERM if they belong to another user, or the context's error
}

func (e *SurvivorsError) Error() string {
	who := "some processes of the command (the system hides which)"
	if len(e.PIDs) > 0 {
		words := make([]string, len(e.PIDs))
		for i, pid := range e.PIDs {
			words[i] = fmt.Sprint(pid)
		}
		who = "processes " + strings.Join(words, ", ") + " of the command"
	}
	return fmt.Sprintf("supervise: %s still run: %v; look at them with ps, end them as their own user or as root",
		who, e.Err)
}

// Unwrap returns the reason.
func (e *SurvivorsError) Unwrap() error { return e.Err }
