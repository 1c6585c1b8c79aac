//go:build unix

package cli

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestAPipeForTheFileOfTheStoreIsNotWaitedFor: croft reads this file before it
// prints any message.
func TestAPipeForTheFileOfTheStoreIsNotWaitedFor(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envStoreFile, pipe)
	said := make(chan string, 1)
	go func() { said <- (&App{}).Redact("a message") }()
	select {
	case got := <-said:
		if got != "a message" {
			t.Errorf("croft says %q", got)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("croft waits for somebody to write to the pipe")
	}
	if text, err := readStore(pipe); err == nil {
		t.Errorf("a pipe is read as %q", text)
	}
}
