package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/internal/testenv"
)

// needsRoot skips a test that needs processes of several users. In CI it fails
// instead.
func needsRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Getuid() == 0:
	case os.Getenv("CI") != "":
		t.Fatal("this test needs root; run the tests as root in CI")
	default:
		t.Skip("this test needs root")
	}
}

// setuidSelf makes a copy of the test binary that belongs to root and runs as
// root. It lies in a directory that everybody may write to.
func setuidSelf(t *testing.T) (program, dir string) {
	t.Helper()
	dir = t.TempDir()
	// Only its owner may be able to enter the test's parent directory. Add
	// permission bits there, and never remove any.
	for at, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o011, dir: 0o777} {
		info, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&mode == mode {
			continue
		}
		if err := os.Chmod(at, info.Mode()|mode); err != nil {
			t.Fatal(err)
		}
	}
	program = filepath.Join(dir, "program")
	copySelf(t, program, 0o755|os.ModeSetuid)
	return program, dir
}

func copySelf(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	text, err := os.ReadFile(self())
	if err != nil {
		t.Fatal(err)
	}
	testenv.WriteProgram(t, path, text, mode)
}

// becomeRoot is a program like sudo: it becomes root for good and runs its
// arguments.
func becomeRoot() int {
	if err := syscall.Setuid(0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
	return 1
}

func TestKillNamesWhatItMayNotKillAndTheWardenStaysWithIt(t *testing.T) {
	needsRoot(t)
	program, dir := setuidSelf(t)
	y := &noteDir{t, dir}
	c := newCaller(t, fmt.Sprintf(`%s=root %s /bin/sh -c '%s%s' & %s read x <%s; exit 0`, roleVar, program, y.sign("root"), forever, y.sign("main"), y.path("gate")))
	if err := syscall.Mkfifo(y.path("gate"), 0o666); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(y.path("gate"), 0o666)
	// This croft is not root, and may not be able to reach the test binary.
	plain := filepath.Join(dir, "croft")
	copySelf(t, plain, 0o755)
	c.Path, c.Args[0] = plain, plain
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c.start()
	root, main := y.signed("root"), y.signed("main")
	warden := wardenOf(t, main)
	gate, err := os.OpenFile(y.path("gate"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = gate.Close()

	if code := c.exit(); code != 96 || !strings.Contains(c.said(), fmt.Sprintf("%d", root.pid)) || !strings.Contains(c.said(), "not permitted") {
		t.Errorf("croft exits %d and says %s", code, c.said())
	}
	if !living(root) || !living(warden) {
		t.Error("the survivor or its warden is dead")
	}
	// This test is root, so it may kill them.
	await(t, "the warden to leave when nobody is left", func() bool {
		f, err := readFamily()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.below(warden.pid, nil) {
			signalProc(t, p, syscall.SIGKILL)
		}
		return !living(warden)
	})
}
