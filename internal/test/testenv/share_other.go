//go:build !linux

package testenv

import "testing"

// Share is one folder and several mounts of it over a network file system.
func Share(tb testing.TB, _ int) (served string, mounted []string) {
	tb.Helper()
	Missing(tb, "a network file system is only mounted on Linux")
	return "", nil
}
