package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Neighbour is another user of this machine, who shares folders with root
// through NeighbourGroup, and attacks them.
const (
	Neighbour      = 64202
	NeighbourGroup = 64201
)

// AsNeighbour runs a shell script as the neighbour.
func AsNeighbour(tb testing.TB, script string, args ...string) {
	tb.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = NeighbourCredential()
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Errorf("the neighbour's %q %q: %v: %s", script, args, err, out)
	}
}

// NeighbourCredential makes a command run as the neighbour.
func NeighbourCredential() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: Neighbour, Gid: Neighbour, Groups: []uint32{NeighbourGroup},
	}}
}

// OpenDir makes a folder that every user can enter.
func OpenDir(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, path := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(path, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// CopyOfSelf copies the test's own program to a path where every user can run
// it, and returns the path.
func CopyOfSelf(tb testing.TB, to string) string {
	tb.Helper()
	from, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	content, err := os.ReadFile(from)
	if err != nil {
		tb.Fatal(err)
	}
	WriteProgram(tb, to, content, 0o755)
	return to
}
