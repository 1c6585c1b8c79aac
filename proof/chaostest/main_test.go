//go:build unix

package chaostest

import (
	"fmt"
	"os"
	"testing"
)

// The environment variables that make the test program a process of the scene.
const (
	envRole    = "CROFT_CHAOS_ROLE"
	envName    = "CROFT_CHAOS_NAME"
	envPlace   = "CROFT_CHAOS_PLACE"
	envHook    = "CROFT_CHAOS_HOOK"
	envJournal = "CROFT_CHAOS_JOURNAL"
	envGo      = "CROFT_CHAOS_GO" // a file; the sleeper goes on when it exists
)

func TestMain(m *testing.M) {
	role := os.Getenv(envRole)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", role, os.Getenv(envName), err)
		os.Exit(1)
	}
}
