//go:build unix

package main

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
)

// TestOutWaitsForNoPipe: another user puts a pipe in the place of the file
// while croft waits for the key. Croft must not wait for a writer of the pipe:
// it holds the key then, and renews the lease.
func TestOutWaitsForNoPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lease")
	for _, replace := range []bool{false, true} {
		file, err := newLeaseFile(path, replace)
		if err != nil {
			t.Fatal(err)
		}
		defer file.remove()
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := file.check(t.Context(), mem.New(nil), "jobs/a"); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("with --replace %t: %v", replace, err)
		}
		if err := syscall.Unlink(path); err != nil {
			t.Fatal(err)
		}
	}
}
