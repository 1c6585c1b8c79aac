package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
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
	ExitFailed      = 1 // output lost; something bad found; refused by an item's state
	exitUsage       = 2
	ExitHeld        = 11
	ExitNotOwned    = 12
	ExitRefused     = 13
	ExitUnknown     = 14
	ExitInterrupted = 130
)

// Outcome is how the program reports an error: its exit code, its code in JSON,
// and a hint.
type Outcome struct {
	match error
	code  string
	Exit  int
	hint  string
}

// outcomes is the only table from errors to exit codes. The first match counts.
// So a lease lost to an unreachable store is lost, and a damaged record, which
// is also invalid, is unknown.
var outcomes = []Outcome{
	{guard.ErrUnfenced, "unfenced", ExitFailed, ""},
	{croft.ErrLost, "not_owned", ExitNotOwned, "stop this work"},
	{context.Canceled, "unknown", ExitInterrupted, ""},
	{ErrReentrant, "held", ExitHeld, "do the work in this command, or choose another key for its part"},
	{tenure.ErrHeld, "held", ExitHeld, "try again later, or wait for it with --wait"},
	{tenure.ErrNotOwned, "not_owned", ExitNotOwned, "croft history shows who followed"},
	{fence.ErrStale, "stale", ExitRefused, ""},
	{fence.ErrCollision, "collision", ExitRefused, "acquire again with --above"},
	{fence.ErrWrongKey, "wrong_key", ExitRefused, ""},
	{fence.ErrRepeated, "repeated", ExitRefused, "number the writes of one lease upwards, or leave --seq out"},
	{work.ErrLost, "not_owned", ExitNotOwned, ""},
	{work.ErrNotFound, "not_found", ExitFailed, ""},
	{work.ErrState, "state", ExitFailed, ""},
	{work.ErrConflict, "conflict", ExitFailed, ""},
	{ErrNothingReady, "empty", ExitHeld, ""},
	{guard.ErrNotAllowed, "not_allowed", ExitFailed, ""},
	{guard.ErrBusy, "unknown", ExitUnknown, ""},
	{store.ErrUnknown, "unknown", ExitUnknown, hintDoctor},
	{fence.ErrInvalid, "invalid", exitUsage, ""},
}

const (
	hintDoctor = "ask again; croft doctor looks at the store"
	// hintFault is for a fault: asking again does not help.
	hintFault = "nothing was changed; croft doctor looks at the store"
)

// otherwise is the outcome of all other errors, such as those of a file system
// or a network.
var otherwise = Outcome{code: "unknown", Exit: ExitUnknown}

// ErrReentrant is matched by the refusal of a key that the calling command
// holds itself.
var ErrReentrant = errors.New("this command runs under that lease itself, and a lease is not re-entrant")

// Reentrant adds ErrReentrant to a refusal, if the key is held by the "croft
// run" around this process. All other errors stay as they are.
func Reentrant(err error) error {
	var held *tenure.HeldError
	if errors.As(err, &held) && held.Why == tenure.WhyHeld && held.Record.Key == os.Getenv(EnvKey) &&
		strconv.FormatInt(int64(held.Record.Token), 10) == os.Getenv(EnvToken) {
		return fmt.Errorf("%w; %w", err, ErrReentrant)
	}
	return err
}

// OutcomeOf finds the outcome of an error.
func OutcomeOf(err error) Outcome {
	for _, o := range outcomes {
		if errors.Is(err, o.match) {
			return o
		}
	}
	return otherwise
}

// CodeOf returns an error's code in JSON.
func CodeOf(err error) string { return OutcomeOf(err).code }

// ExitError ends the program with a code and prints nothing, because the
// command has printed everything.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// UsageError is a mistake in the command line.
type UsageError struct{ Message, Hint string }

func (e *UsageError) Error() string { return e.Message }

// Is makes it match fence.ErrInvalid.
func (e *UsageError) Is(target error) bool { return target == fence.ErrInvalid }

// Invalid returns an error about a value that cannot be used. It matches
// fence.ErrInvalid.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w "+format, append([]any{fence.ErrInvalid}, args...)...)
}

// Fail reports an error to the user and returns the exit code.
func (a *App) Fail(err error) int {
	var silent ExitError
	if errors.As(err, &silent) {
		if code := a.Stdout.Close(a.Stderr); code != 0 && silent == 0 {
			return code
		}
		return int(silent)
	}
	o := OutcomeOf(err)
	hint := o.hint
	var usage *UsageError
	if errors.As(err, &usage) {
		hint = usage.Hint
	}
	var lost *tenure.NotOwnedError
	if errors.As(err, &lost) && lost.Why != tenure.WhySuperseded && lost.Why != tenure.WhyTakenOver {
		hint = "" // nobody has followed
	}
	if store.IsFault(err) && hint == hintDoctor {
		hint = hintFault
	}
	if a.Examining && (hint == hintDoctor || hint == hintFault) {
		hint = ""
	}
	if o.Exit == ExitInterrupted {
		err = interrupted{err}
	}
	message := a.Redact(err.Error())
	if a.JSON {
		a.Print(map[string]any{"error": a.FactsOf(err)})
		a.Stdout.Close(a.Stderr)
		return o.Exit
	}
	a.Stdout.Close(a.Stderr)
	fmt.Fprintf(a.Stderr, "croft: %s\n", Lines(message))
	if hint != "" && !strings.Contains(message, hint) {
		fmt.Fprintf(a.Stderr, "       %s\n", hint)
	}
	return o.Exit
}

// interrupted replaces the text of an error that only says that its command was
// interrupted.
type interrupted struct{ error }

func (e interrupted) Error() string { return "interrupted" }
func (e interrupted) Unwrap() error { return e.error }

// FactsOf is an error as --json prints it: its code, its message, and details.
func (a *App) FactsOf(err error) Facts {
	f := Facts{{"code", CodeOf(err)}, {"message", a.Redact(err.Error())}}
	return append(f, factsOf(err)...)
}

// ErrNothingReady says that there was nothing to claim.
var ErrNothingReady = errors.New("nothing is ready")
