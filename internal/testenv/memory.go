package testenv

import (
	"os"
	"testing"
)

// Memory is a fresh folder on a file system in memory, where there is one: for tests that make thousands of files, or are about something else than the disk. It is removed at the end.
func Memory(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "croft-test-") //nolint:usetesting // not where the test's own folders are
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}
