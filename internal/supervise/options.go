package supervise

import (
	"os"
	"strings"
	"time"
)

// Options say how a command is run. A nil *Options means all defaults.
type Options struct {
	// Env is the command's whole environment. If a name occurs twice, the last
	// value counts. Nil means the caller's own environment. The command is
	// looked up in this environment's PATH.
	Env []string

	// Dir is the command's working directory. Empty means the caller's own.
	Dir string

	// Scratch is a file or folder that is of no use once the command is over.
	// The caller removes it in the end. If the caller is killed while the
	// command runs, the warden does, if there is one. Empty means none.
	Scratch string

	// AllowFor limits how long the command may run, counted from the call of
	// Start, as [Child.AllowFor] does. The limit applies from the first moment.
	// Without a warden there is no limit. Zero means no limit.
	AllowFor time.Duration

	// Stdin, Stdout and Stderr are handed to the command as they are, so that a
	// terminal stays a terminal. Nil means the null device.
	Stdin, Stdout, Stderr *os.File

	// Aside is for one of several commands under a caller that goes on with its
	// own work. The caller keeps its signals and its terminal, and a command
	// that is stopped does not stop the caller.
	Aside bool

	// GroupWillDo is for a library, whose program may not call [MaybeWarden].
	// Without that call the command runs without a warden, as on other Unix
	// systems. Only its process group is signalled and killed. AllowFor does
	// nothing, so the caller must call Kill in time. If the caller is killed,
	// the command goes on and Scratch stays.
	GroupWillDo bool

	// MayContinue is called when the caller's process was continued (SIGCONT),
	// before the command is continued with it. If it returns false, a stopped
	// command stays stopped until Thaw or Kill. It runs on a goroutine of this
	// package and must not block for long. Nil means always.
	MayContinue func() bool
}

// environ returns the command's environment.
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

// lastOfEach keeps the last value of every name. Callers append to overwrite,
// but most programs read the first value that they find.
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
