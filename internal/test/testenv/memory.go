package testenv

import (
	"os"
	"testing"
)

// Memory returns a fresh folder on a file system in memory, if there is one. It
// is for tests that make thousands of files, or do not test the disk. It is
// removed at the end.
func Memory(tb testing.TB) string {
	tb.Helper()
	within := InMemory()
	if within == "" {
		return tb.TempDir()
	}
	dir, err := os.MkdirTemp(within, "") //nolint:usetesting // not where the test's own folders are
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
