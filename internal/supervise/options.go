package supervise

import (
	"os"
	"strings"
	"time"
)

// Options say how a command is run. A nil *Options means all defaults.
type Options struct {
	// Env is the command's whole environment; of several values for one name the last counts.
	// Nil means the caller's own. The command is looked up in this environment's PATH.
	Env []string

	// Dir is the command's working directory. Empty means the caller's own.
	Dir string

	// Scratch is a file or folder that is of no use once the command is over.
	// The caller removes it in the end. If the caller is killed while the
	// command runs, the warden does, on Linux. Empty means none.
	Scratch string

	// AllowFor lets the command run until so long after the call of Start, as [Child.AllowFor] does, with no moment in which there is no
	// limit yet. Zero means that there is none.
	AllowFor time.Duration

	// Stdin, Stdout and Stderr are handed to the command as they are, not copied through pipes,
	// so that a terminal stays a terminal. Nil means the null device.
	Stdin, Stdout, Stderr *os.File

	// Aside is for a command that is one of several under a caller that works on by itself: the signals that the caller gets are its own
	// and are not passed on, the terminal is never lent, and a command that is stopped does not stop the caller.
	Aside bool

	// GroupWillDo is for a library, whose program may not call [MaybeWarden].
	// There the command runs without a warden, as on other Unix systems: its
	// process group is all that is signalled and killed.
	GroupWillDo bool

	// MayContinue is asked whenever the caller's process was continued (SIGCONT) and the command is about to be
	// continued with it. If it says no, a stopped command stays stopped until Thaw or Kill. It runs on
	// a goroutine of this package and must not block for long. Nil means always.
	MayContinue func() bool
}

// environ returns the environment the command gets.
func (o *Options) environ() []string {
	env := o.Env
	if env == nil {
		env = os.Environ()
		if o.Dir != "" {
			env = append(env, "PWD="+o.Dir)
		}
	}
	return lastOfEach(env)
}

// lastOfEach keeps the last value of every name: most programs read the first they find, and callers append.
func lastOfEach(env []string) []string {
	seen := make(map[string]bool, len(env))
	kept := make([]string, 0, len(env))
	for i := len(env) - 1; i >= 0; i-- {
		name, _, ok := strings.Cut(env[i], "=")
		if ok && seen[name] {
			continue
		}
		seen[name] = ok
		kept = append(kept, env[i])
	}
	for i, j := 0, len(kept)-1; i < j; i, j = i+1, j-1 {
		kept[i], kept[j] = kept[j], kept[i]
	}
	return kept
}
