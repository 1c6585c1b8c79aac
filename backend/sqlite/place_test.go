package sqlite

import (
	"os"
	"testing"
)

// memoryDir is a folder where a sync costs nothing, if there is one: for tests about something else than the disk.
func memoryDir(tb testing.TB) string {
	tb.Helper()
	if dir, err := os.MkdirTemp("/dev/shm", "croft-sqlite-"); err == nil {
		tb.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	return tb.TempDir()
}
