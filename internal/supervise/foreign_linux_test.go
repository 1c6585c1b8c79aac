package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

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

// asNobody makes this croft run as nobody. It may not be able to reach the test
// binary, so it gets a copy.
func (c *caller) asNobody(dir string) *caller {
	c.t.Helper()
	plain := filepath.Join(dir, "croft")
	copySelf(c.t, plain, 0o755)
	c.Path, c.Args[0] = plain, plain
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return c
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
	testenv.NeedRoot(t)
	program, dir := setuidSelf(t)
	y := &noteDir{t, dir}
	c := newCaller(t, fmt.Sprintf(`%s=root %s /bin/sh -c '%s%s' & %s read x <%s; exit 0`, roleVar, program, y.sign("root"), forever, y.sign("main"), y.path("gate")))
	if err := syscall.Mkfifo(y.path("gate"), 0o666); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(y.path("gate"), 0o666)
	c.asNobody(dir).start()
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

// TestKillOfAGroupNamesWhatItMayNotKill: without a warden, too, Kill returns
// when it can do nothing more.
func TestKillOfAGroupNamesWhatItMayNotKill(t *testing.T) {
	for name, script := range map[string]string{
		"the command":            `exec %s`,
		"a child of the command": `%s & ` + forever,
		// The other process never waits for its child, which is nobody's.
		"the parent of a zombie": `sleep 1000 & exec %s`,
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NeedRoot(t)
			program, dir := setuidSelf(t)
			y := &noteDir{t, dir}
			// The shell makes the file "go" itself. Then no child of it is left
			// that croft would have to name, too.
			foreign := fmt.Sprintf(`env %s=root %s /bin/sh -c '%s : >%s; exec sleep 1000'`,
				roleVar, program, y.sign("root"), y.path("go"))
			c := newCaller(t, fmt.Sprintf(script, foreign), "GROUP=1", "KILL_AT="+y.path("go"))
			c.asNobody(dir).start()
			root := y.signed("root")
			defer func() {
				signalProc(t, root, syscall.SIGKILL) // this test is root, so it may
				awaitDeath(t, "root", root)
			}()
			if code := c.exit(); code != 96 || !strings.Contains(c.said(), fmt.Sprintf("processes %d of", root.pid)) || !strings.Contains(c.said(), "not permitted") {
				t.Errorf("croft exits %d and says %s", code, c.said())
			}
			if !living(root) {
				t.Error("the survivor is dead")
			}
		})
	}
}

// mover is a program that joins its parent's process group.
func mover() int {
	parents, err := syscall.Getpgid(os.Getppid())
	if err == nil {
		err = syscall.Setpgid(0, parents)
	}
	if err == nil {
		err = os.WriteFile(os.Args[1], nil, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		time.Sleep(time.Hour)
	}
}

// TestKillOfAGroupReachesACommandThatHasLeftIt: Kill waits for the command, so
// it must also kill it.
func TestKillOfAGroupReachesACommandThatHasLeftIt(t *testing.T) {
	y := newNoteDir(t)
	c := newCaller(t, "exec env "+as("mover")+y.path("moved"), "GROUP=1", "KILL_AT="+y.path("moved"))
	if code := c.start().exit(); code != 137 {
		t.Errorf("croft exits %d and says %s", code, c.said())
	}
}

func TestKillOfAGroupLeavesNothing(t *testing.T) {
	y := newNoteDir(t)
	c := newCaller(t, y.sign("main")+"sh -c '"+y.sign("child")+forever+"' & "+forever, "GROUP=1", "KILL_AT="+y.path("go"))
	c.start()
	main, child := y.signed("main"), y.signed("child")
	if err := os.WriteFile(y.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.exit(); code != 137 {
		t.Errorf("croft exits %d and says %s", code, c.said())
	}
	if living(main) || living(child) {
		t.Error("croft has gone, and its command lives")
	}
}
