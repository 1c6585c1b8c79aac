package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMain(m *testing.M) {
	if isNeighbour() {
		return
	}
	os.Exit(m.Run())
}

// planted is a small module with tests of every kind.
var planted = map[string]string{
	"go.mod": "module planted\n\ngo 1.26\n",

	"good/good_test.go": `package good
import ("os"; "path/filepath"; "runtime"; "testing")
func TestGood(t *testing.T) {}
func TestEnvironment(t *testing.T) {
	if os.Getenv("CI") != "true" { t.Error("CI is not true") }
	if wd, _ := os.Getwd(); filepath.Base(wd) != "good" { t.Error("runs in", wd) }
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 { t.Error("its temporary folder holds", left, err) }
	if n := runtime.GOMAXPROCS(0); n > 2 { t.Error("runs on", n) }
	if testing.Short() { t.Error("is short") }
}`,

	// Every fourth run fails. A file in the package's folder counts the runs.
	"flaky/flaky_test.go": `package flaky
import ("os"; "testing")
func TestSteady(t *testing.T) {}
func TestFlaky(t *testing.T) {
	t.Run("some times (4)", func(t *testing.T) {
		runs, _ := os.ReadFile("runs")
		os.WriteFile("runs", append(runs, 'x'), 0o600)
		if len(runs)%4 == 3 { t.Error("it is the fourth run") }
	})
}`,

	// A stopped process gets the signal when it goes on.
	"timer/timer_test.go": `package timer
import ("os"; "os/signal"; "syscall"; "testing"; "time")
func TestTimer(t *testing.T) {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	select {
	case <-time.NewTimer(time.Minute).C:
	case <-goesOn: t.Error("stopped while it held a timer")
	}
}`,
	// TestPanics/waits is running when the other subtest panics.
	// TestWaitsForItsTurn is not.
	"panics/panics_test.go": `package panics
import ("testing"; "time")
func TestWaitsForItsTurn(t *testing.T) { t.Parallel() }
func TestPanics(t *testing.T) {
	t.Run("waits", func(t *testing.T) { t.Parallel(); time.Sleep(time.Hour) })
	t.Run("panics", func(t *testing.T) { t.Parallel(); go panic("planted"); time.Sleep(time.Hour) })
}`,
	"exits/exits_test.go": `package exits
import ("os"; "testing")
func TestMain(m *testing.M) { m.Run(); os.Exit(3) }
func TestPasses(t *testing.T) {}`,
	"hangs/hangs_test.go": `package hangs
import ("testing"; "time")
func TestHangs(t *testing.T) { time.Sleep(time.Hour) }`,

	"bench/go.mod": "module planted/bench\n\ngo 1.26\n",
	"bench/sub/sub_test.go": `package sub
import "testing"
func TestBench(t *testing.T) {}`,
	"untested/untested.go": "package untested\n",
}

// plant writes the module and makes it the working directory.
func plant(t *testing.T) {
	t.Helper()
	top := t.TempDir()
	for name, text := range planted {
		file := filepath.Join(top, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(top)
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
}

// hunted is the result of a hunt.
type hunted struct {
	status         int
	stdout, stderr string
	result         result
}

// hunt runs the program with these arguments, and checks that it leaves no
// temporary files.
func hunt(t *testing.T, ctx context.Context, args ...string) hunted {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	file := filepath.Join(t.TempDir(), "result.json")
	var stdout, stderr bytes.Buffer
	status := command(ctx, append([]string{"-json", file, "-build", "-ldflags=-w"}, args...), &stdout, &stderr)
	h := hunted{status: status, stdout: stdout.String(), stderr: stderr.String()}
	if text, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(text, &h.result); err != nil {
			t.Errorf("the JSON: %v", err)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("the hunt left temporary files: %v, %v", left, err)
	}
	t.Logf("exit status %d\n%s%s", h.status, h.stdout, h.stderr)
	return h
}

// failing finds the row of a failed test.
func (h hunted) failing(t *testing.T, pkg, test string) *testTally {
	t.Helper()
	i := slices.IndexFunc(h.result.Failing, func(f *testTally) bool { return f.Package == pkg && f.Test == test })
	if i < 0 {
		t.Fatalf("%s %q is not among the failed tests", pkg, test)
	}
	return h.result.Failing[i]
}

// pkg finds the row of a package.
func (h hunted) pkg(t *testing.T, name string) *packageTally {
	t.Helper()
	i := slices.IndexFunc(h.result.Each, func(p *packageTally) bool { return p.Package == name })
	if i < 0 {
		t.Fatalf("%s is not among the packages that were run", name)
	}
	return h.result.Each[i]
}
