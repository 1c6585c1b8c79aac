package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// The exit codes.
const (
	exitFailed      = 1 // output lost; something bad found; refused by an item's state
	exitUsage       = 2
	exitHeld        = 11
	exitNotOwned    = 12
	exitRefused     = 13
	exitUnknown     = 14
	exitInterrupted = 130
)

// outcome is how the program reports an error: its exit code, its code in JSON,
// and a hint.
type outcome struct {
	match error
	code  string
	exit  int
	hint  string
}

// outcomes is the only table from errors to exit codes. The first match counts.
// So a lease lost to an unreachable store is lost, and a damaged record, which
// is also invalid, is unknown.
var outcomes = []outcome{
	{croft.ErrLost, "not_owned", exitNotOwned, "stop this work"},
	{context.Canceled, "unknown", exitInterrupted, ""},
	{tenure.ErrHeld, "held", exitHeld, "try again later, or wait for it with --wait"},
	{tenure.ErrNotOwned, "not_owned", exitNotOwned, "croft history shows who followed"},
	{fence.ErrStale, "stale", exitRefused, ""},
	{fence.ErrCollision, "collision", exitRefused, "acquire again with --above"},
	{fence.ErrWrongKey, "wrong_key", exitRefused, ""},
	{fence.ErrRepeated, "repeated", exitRefused, "number the writes of one lease upwards, or leave --seq out"},
	{work.ErrLost, "not_owned", exitNotOwned, ""},
	{work.ErrNotFound, "not_found", exitFailed, ""},
	{work.ErrState, "state", exitFailed, ""},
	{work.ErrConflict, "conflict", exitFailed, ""},
	{errNothingReady, "empty", exitHeld, ""},
	{guard.ErrBusy, "unknown", exitUnknown, ""},
	{store.ErrUnknown, "unknown", exitUnknown, hintDoctor},
	{fence.ErrInvalid, "invalid", exitUsage, ""},
}

const hintDoctor = "ask again; croft doctor looks at the store"

// otherwise is the outcome of all other errors, such as those of a file system
// or a network.
var otherwise = outcome{code: "unknown", exit: exitUnknown}

func outcomeOf(err error) outcome {
	for _, o := range outcomes {
		if errors.Is(err, o.match) {
			return o
		}
	}
	return otherwise
}

// exitError ends the program with a code and prints nothing, because the
// command has printed everything.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a mistake in the command line.
type usageError struct{ message, hint string }

func (e *usageError) Error() string        { return e.message }
func (e *usageError) Is(target error) bool { return target == fence.ErrInvalid }

// invalid returns an error about a value that cannot be used. It matches
// fence.ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w "+format, append([]any{fence.ErrInvalid}, args...)...)
}

// fail reports an error to the user and returns the exit code.
func (a *app) fail(err error) int {
	var silent exitError
	if errors.As(err, &silent) {
		if code := a.stdout.close(a.stderr); code != 0 && silent == 0 {
			return code
		}
		return int(silent)
	}
	o := outcomeOf(err)
	hint := o.hint
	var usage *usageError
	if errors.As(err, &usage) {
		hint = usage.hint
	}
	if a.examining && hint == hintDoctor {
		hint = ""
	}
	if o.exit == exitInterrupted {
		err = errors.New("interrupted")
	}
	// Client libraries list their tries on lines of their own.
	message := strings.ReplaceAll(a.redact(err.Error()), "\n\t", " ")
	if a.json {
		a.print(map[string]any{"error": append(facts{{"code", o.code}, {"message", message}}, factsOf(err)...)})
		a.stdout.close(a.stderr)
		return o.exit
	}
	a.stdout.close(a.stderr)
	fmt.Fprintf(a.stderr, "croft: %s\n", lines(message))
	if hint != "" && !strings.Contains(message, hint) {
		fmt.Fprintf(a.stderr, "       %s\n", hint)
	}
	return o.exit
}

// errNothingReady says that there was nothing to claim.
var errNothingReady = errors.New("nothing is ready")
