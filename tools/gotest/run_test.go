package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// planted is a module with everything that a report can show.
var planted = map[string]string{
	"go.mod":       "module planted\n",
	"good/good.go": "package good\n",
	"good/good_test.go": `package good
import "testing"
func TestGood(t *testing.T) { t.Log("nobody wants to know") }
func TestLeftOut(t *testing.T) { t.Skip("needs a server") }`,
	"bad/bad_test.go": `package bad
import "testing"
func TestBad(t *testing.T) {
	t.Run("fine", func(t *testing.T) {})
	t.Run("not fine", func(t *testing.T) { t.Error("seven is not eight") })
}`,
	"panics/panics_test.go": `package panics
import "testing"
func TestFirst(t *testing.T) {}
func TestPanics(t *testing.T) { panic("out of cheese") }`,
	"quits/quits_test.go": `package quits
import ("os"; "testing"; "fmt")
func TestMain(m *testing.M) { fmt.Println("no server here"); os.Exit(3) }
func TestNever(t *testing.T) {}`,
	"broken/broken_test.go": `package broken
import "testing"
func TestBroken(t *testing.T) { undefined() }`,
}

func runPlanted(t *testing.T, args ...string) (r *run, shown string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range planted {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	r = newRun("planted", args)
	var keep, out strings.Builder
	err = r.goTest(t.Context(), &keep, &out)
	if !strings.Contains(keep.String(), "nobody wants to know") {
		t.Error("the kept output is not whole")
	}
	return r, out.String(), err
}

func TestTheEndTellsWhatFailedAndHowToRunItAgain(t *testing.T) {
	r, shown, err := runPlanted(t, "-count=1", "-timeout=5m", "-parallel=8", "./...")
	if err == nil {
		t.Error("go test passed")
	}
	var failures strings.Builder
	r.failures(&failures)
	told := failures.String()
	for _, want := range []string{
		"--- ./bad TestBad/not_fine failed", "seven is not eight",
		"again: go test -count=1 -run '^TestBad$/^not_fine$' ./bad\n",
		"--- ./panics TestPanics failed", "out of cheese",
		"again: go test -count=1 -run '^TestPanics$' ./panics\n",
		"--- ./quits failed, but none of its tests", "no server here", "again: go test -count=1 ./quits\n",
		"--- ./broken does not build", "undefined: undefined", "again: go test -count=1 ./broken\n",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("the end does not say %q", want)
		}
	}
	for _, bad := range []string{"TestGood", "nobody wants to know", "TestFirst", "TestBad failed", "TestBad/fine"} {
		if strings.Contains(told, bad) {
			t.Errorf("the end says %q", bad)
		}
	}
	if t.Failed() {
		t.Logf("the end:\n%s", told)
	}
	for _, want := range []string{"ok  ", "./good, 2 tests", "FAIL", "./bad TestBad\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("while it ran, it did not say %q but\n%s", want, shown)
		}
	}
}

func TestTheEndNamesSkippedTestsAndSlowPackages(t *testing.T) {
	r, _, err := runPlanted(t, "-count=1", "./good")
	if err != nil {
		t.Error(err)
	}
	var skips, slow, failures strings.Builder
	r.skips(&skips)
	r.slowest(&slow, 5)
	r.failures(&failures)
	if !strings.Contains(skips.String(), "NOT CHECKED") || !strings.Contains(skips.String(), "TestLeftOut: good_test.go:4: needs a server") {
		t.Errorf("skips: %s", skips.String())
	}
	if !strings.Contains(slow.String(), "./good: Test") {
		t.Errorf("slowest: %s", slow.String())
	}
	if failures.Len() > 0 {
		t.Errorf("failures: %s", failures.String())
	}
	if total := r.total(r.began); !strings.Contains(total, "1 tests passed, 0 failed, 1 skipped, in 1 packages") {
		t.Error(total)
	}
}

// A run that is cut off has tests without an outcome. They count as failed.
func TestATestWithoutAnOutcomeIsTold(t *testing.T) {
	r := newRun("planted", []string{"-race", "./..."})
	var out strings.Builder
	stream := `{"Action":"start","Package":"planted/p"}
{"Action":"run","Package":"planted/p","Test":"TestHangs"}
{"Action":"output","Package":"planted/p","Test":"TestHangs","Output":"panic: test timed out after 20m0s\n"}
not an event
{"Action":"output","Package":"planted/p","Output":"WARNING: DATA RACE\\n"}
{"Action":"fail","Package":"planted/p","Elapsed":1200}
{"Action":"start","Package":"planted/cut"}
`
	if err := r.follow(strings.NewReader(stream), &out, &sync.Mutex{}); err != nil {
		t.Fatal(err)
	}
	var beat strings.Builder
	r.event(event{Action: "run", Package: "planted/cut", Test: "TestWaits"}, &beat)
	r.event(event{Action: "pause", Package: "planted/cut", Test: "TestWaits"}, &beat)
	r.event(event{Action: "run", Package: "planted/cut", Test: "TestRuns"}, &beat)
	if r.waiting(&beat, r.began); !strings.Contains(beat.String(), "1 packages done; running: ./cut TestRuns for ") {
		t.Errorf("the heartbeat says %s", beat.String())
	}
	var failures strings.Builder
	r.failures(&failures)
	for _, want := range []string{"./p TestHangs did not end", "timed out after 20m", "-race -run '^TestHangs$' ./p", "./p, outside its tests", "DATA RACE", "./cut did not end"} {
		if !strings.Contains(failures.String(), want) {
			t.Errorf("the end does not say %q but\n%s", want, failures.String())
		}
	}
	if !strings.Contains(out.String(), "not an event") {
		t.Error("a line of the go command itself was swallowed")
	}
}

func TestLongOutputKeepsItsBeginningAndItsEnd(t *testing.T) {
	var o output
	o.add("=== RUN   TestX\n")
	for i := range 1000 {
		o.add(strings.Repeat("x", i%3) + "line\n")
	}
	o.add("the last\n")
	var b strings.Builder
	o.write(&b)
	if n := strings.Count(b.String(), "\n"); n != mostFirst+mostLast+1 {
		t.Errorf("%d lines", n)
	}
	if !strings.Contains(b.String(), "801 lines are left out") || !strings.HasSuffix(b.String(), "the last\n") {
		t.Error(b.String())
	}
}

func TestAWorkspaceIsNamedAfterItsTop(t *testing.T) {
	if got := outermost(croft + "/backend/redis\n" + croft + "\n" + croft + "/proof\n"); got != croft {
		t.Error(got)
	}
}

func TestACommandOfAnotherModuleBeginsInItsFolder(t *testing.T) {
	r := newRun(croft+"/bench", []string{"-race", "./..."})
	p := &pkg{path: croft + "/bench/peers"}
	if got := r.command(p, "TestA"); got != "cd bench && GOWORK=off go test -race -run '^TestA$' ./peers" {
		t.Error(got)
	}
}
