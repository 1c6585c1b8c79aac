package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAFlakyTestIsFoundAndTheOthersAreNotBlamed(t *testing.T) {
	plant(t)
	h := hunt(t, t.Context(), "-count", "8", "-stop", "20ms", "-every", "100ms", "./good", "./flaky", "./bench/...")
	if h.status != exitFailed {
		t.Errorf("exit status %d, want %d", h.status, exitFailed)
	}
	if len(h.result.Failing) != 1 {
		t.Errorf("%d tests failed, want one", len(h.result.Failing))
	}
	f := h.failing(t, "./flaky", "TestFlaky/some_times_(4)")
	if f.Runs != 8 || f.Failures != 2 || f.Rate != 0.25 {
		t.Errorf("%d failures in %d runs, rate %v; want 2 of 8, 0.25", f.Failures, f.Runs, f.Rate)
	}
	for _, failed := range f.Failed {
		if len(failed.Lines) != 1 || !strings.Contains(failed.Lines[0], "it is the fourth run") {
			t.Errorf("the failure says %q", failed.Lines)
		}
		if text, err := os.ReadFile(failed.File); err != nil || !strings.Contains(string(text), "--- PASS: TestSteady") {
			t.Errorf("the kept output is %q, %v; want all of the run", text, err)
		}
	}
	// Runs take turns at one processor and at two: the fourth of each has two.
	if f.Failed[0].CPU != 2 {
		t.Errorf("the fourth run was on %d processors, want 2", f.Failed[0].CPU)
	}
	for name, tests := range map[string]int{"./good": 2, "./flaky": 3, "./bench/sub": 1} {
		if p := h.pkg(t, name); p.Runs != 8 || p.Tests != tests || p.Slowest == 0 {
			t.Errorf("%s: %d runs of %d tests, the slowest %v s; want 8 of %d", name, p.Runs, p.Tests, p.Slowest, tests)
		}
	}
	for _, want := range []string{
		"built all in", "FAIL ./flaky TestFlaky/some_times_(4): seed ",
		"./flaky TestFlaky/some_times_(4): 2 of 8 runs, 25 %",
		"make flakes FLAKESFLAGS='-run ^TestFlaky$$/^some_times_.4.$$ ./flaky'",
		"\n48 runs of 6 tests in 3 packages, 2 failures\n",
	} {
		if !strings.Contains(h.stdout, want) {
			t.Errorf("the output does not say %q", want)
		}
	}

	// The plain command runs that test alone. This is its ninth run.
	out, err := exec.Command("sh", "-c", f.Plain+" -v").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestFlaky/some_times_(4)") ||
		strings.Contains(string(out), "TestSteady") {
		t.Errorf("%s: %v\n%s", f.Plain, err, out)
	}
}

func TestABinaryCanRunEachTestOften(t *testing.T) {
	plant(t)
	h := hunt(t, t.Context(), "-count", "2", "-each", "6", "-stop", "0", "-run", "TestFlaky", "./flaky", "./good")
	f := h.failing(t, "./flaky", "TestFlaky/some_times_(4)")
	if f.Runs != 12 || f.Failures != 3 || len(f.Failed) != 2 {
		t.Errorf("%d failures in %d runs of %d binaries, want 3 in 12 of 2", f.Failures, f.Runs, len(f.Failed))
	}
	if p := h.pkg(t, "./good"); p.Runs != 1 {
		t.Errorf("a package without a matching test ran %d times, want once", p.Runs)
	}
}

func TestATestIsStoppedWhileItHoldsATimer(t *testing.T) {
	if !canStop {
		t.Skip("processes cannot be stopped here")
	}
	plant(t)
	h := hunt(t, t.Context(), "-count", "1", "-busy", "0", "-disk=false", "-stop", "1s", "-every", "300ms", "./timer")
	f := h.failing(t, "./timer", "TestTimer")
	if h.status != exitFailed || f.Failures != 1 || f.Failed[0].Stops == 0 {
		t.Errorf("exit status %d, %d failures, %d stops; want a failure after a stop",
			h.status, f.Failures, f.Failed[0].Stops)
	}
}

func TestABinaryThatEndsBadlyFails(t *testing.T) {
	plant(t)
	h := hunt(t, t.Context(), "-count", "1", "-stop", "0", "./panics", "./exits")
	if h.status != exitFailed || len(h.result.Failing) != 3 {
		t.Errorf("exit status %d and %d failed tests, want %d and 3", h.status, len(h.result.Failing), exitFailed)
	}
	h.blames(t, "./panics", "TestPanics/waits", "panic: planted")
	h.blames(t, "./panics", "TestPanics/panics", "panic: planted")
	h.blames(t, "./exits", "", "exit status 3")
}

func TestABinaryThatTimesOutFails(t *testing.T) {
	plant(t)
	h := hunt(t, t.Context(), "-count", "1", "-stop", "0", "-timeout", "1s", "./hangs")
	if h.status != exitFailed || len(h.result.Failing) != 1 {
		t.Errorf("exit status %d and %d failed tests, want %d and 1", h.status, len(h.result.Failing), exitFailed)
	}
	h.blames(t, "./hangs", "TestHangs", "panic: test timed out after 1s")
}

// blames checks that a test failed in its only run, with a certain output.
func (h hunted) blames(t *testing.T, pkg, test, says string) {
	t.Helper()
	f := h.failing(t, pkg, test)
	if said := strings.Join(f.Failed[0].Lines, "\n"); f.Runs != 1 || f.Failures != 1 || !strings.Contains(said, says) {
		t.Errorf("%s %q: %d failures in %d runs, says %q; want %q", pkg, test, f.Failures, f.Runs, said, says)
	}
}

func TestAnInterruptedHuntPrintsItsTable(t *testing.T) {
	plant(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The good package has run when the other one hangs: one binary at a time.
	go func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			if outs, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "fl*", "1.out")); len(outs) > 0 {
				cancel()
			}
		}
	}()
	h := hunt(t, ctx, "-jobs", "1", "./good", "./hangs")
	if h.status != exitClean || h.result.Failures != 0 {
		t.Errorf("exit status %d and %d failures, want none", h.status, h.result.Failures)
	}
	if good := h.pkg(t, "./good"); good.Runs != 1 || good.Cut != 0 {
		t.Errorf("./good: %d runs, %d cut short; want 1 and 0", good.Runs, good.Cut)
	}
	if hangs := h.pkg(t, "./hangs"); hangs.Runs != 0 || hangs.Cut != 1 {
		t.Errorf("./hangs: %d runs, %d cut short; want 0 and 1", hangs.Runs, hangs.Cut)
	}
	if !strings.Contains(h.stdout, "2 runs of 2 tests in 2 packages, 0 failures") {
		t.Error("the last line does not count the tests that ended")
	}
}

func TestTimeEndsAHunt(t *testing.T) {
	plant(t)
	h := hunt(t, t.Context(), "-for", "100ms", "-jobs", "1", "-busy", "0", "./hangs", "./good")
	if h.status != exitClean || !slices.Contains(h.result.NotRun, "./good") {
		t.Errorf("exit status %d, not run: %v; want ./good among them", h.status, h.result.NotRun)
	}
	if !strings.Contains(h.stdout, "NOT RUN, for lack of time: ") {
		t.Error("the table does not say what was not run")
	}
}

func TestWrongUseIsToldApart(t *testing.T) {
	plant(t)
	for _, args := range [][]string{
		{"-bogus"},
		{"-for", "0s"},
		{"-count", "0"},
		{"-jobs", "0"},
		{"-run", "("},
		{"-stop", "-1s"},
		{"./good", "-run", "x"},
		{"./nowhere"},
		{"./untested"},
		{"-count", "1", "-run", "^TestNobody$", "./good"},
	} {
		if h := hunt(t, t.Context(), args...); h.status != exitUsage || !strings.HasPrefix(h.stderr, "flakes: ") {
			t.Errorf("%q: exit status %d, says %q; want %d and why", args, h.status, h.stderr, exitUsage)
		}
	}
	if h := hunt(t, t.Context(), "-h"); h.status != exitClean || !strings.Contains(h.stdout, "-for duration") {
		t.Errorf("-h: exit status %d, says %q", h.status, h.stdout)
	}
}

func TestTestsThatDoNotBuildFail(t *testing.T) {
	plant(t)
	broken := []byte("package good\nvar x int = nothing\n")
	if err := os.WriteFile(filepath.Join("good", "broken_test.go"), broken, 0o600); err != nil {
		t.Fatal(err)
	}
	h := hunt(t, t.Context(), "-count", "1", "./good")
	if h.status != exitFailed || !strings.Contains(h.stderr, "undefined: nothing") {
		t.Errorf("exit status %d, says %q; want %d and the compiler's words", h.status, h.stderr, exitFailed)
	}
}
