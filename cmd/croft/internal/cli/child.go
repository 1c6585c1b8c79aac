package cli

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/registry"
)

// ownVariables are for croft itself. A command that croft starts does not
// inherit them.
var ownVariables = []string{
	EnvWebhookSecret,       // the command could sign requests in the dispatcher's name
	EnvRaise,               // it may hold passwords
	EnvStore, envStoreFile, // StoreFor hands the store to the command
	EnvKey, EnvToken, EnvLease, EnvStamp, EnvDeadline, // of the lease that croft itself runs under
}

// AttemptVariables describe the work item that croft itself runs for, if it
// runs for one. "croft run" hands them on. A dispatcher does not: "croft work
// emit" in one of its commands would emit in the name of that item.
var AttemptVariables = []string{EnvEffects, EnvDone, "CROFT_CHECKPOINT", "CROFT_GENERATION", "CROFT_LIMIT"}

// InheritedEnv returns the part of croft's environment that commands get,
// without the named variables.
func InheritedEnv(without ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(ownVariables, name) || slices.Contains(without, name)
	})
}

// PipeEnv returns the environment of a command whose output croft reads. It is
// croft's own, as at the other end of a pipe, without what only croft needs and
// without the password of the store.
func PipeEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == EnvWebhookSecret || name == EnvRaise
	})
	for i, entry := range env {
		if name, isStore := strings.CutPrefix(entry, EnvStore+"="); isStore {
			env[i] = EnvStore + "=" + registry.Bare(name)
		}
	}
	return append(env, EnvConfirm+"=stderr")
}

// KillTimeout bounds the wait for killed processes.
const KillTimeout = 10 * time.Second
