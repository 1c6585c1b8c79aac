package main

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/croft-dev/croft/proof/sim"
)

// shown returns the output of a page for the events of a package.
func shown(t *testing.T, events string) (p *page, out, errs string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	p = &page{out: &o, err: &e}
	err = read(bufio.NewScanner(strings.NewReader(events)), []suite{{"backend/dir", "directory", false}}, p)
	p.end(0)
	return p, o.String(), e.String(), err
}

func line(action, test, output string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":"x/backend/dir","Test":%q,"Output":%q,"Elapsed":0.25}`+"\n", action, test, output)
}

// If a test does not name the check, its own name is shown. Tests that only
// have subtests are not shown.
func TestAVariantIsShownWithTheCheckThatFindsIt(t *testing.T) {
	p, out, _, err := shown(t, line("run", "TestBrokenStoresAreCaught", "")+
		line("output", "TestBrokenStoresAreCaught/wakes_nobody", `    x_test.go:1: caught by "a watch wakes": nobody woke`)+
		line("pass", "TestBrokenStoresAreCaught/wakes_nobody", "")+
		line("pass", "TestBrokenStoresAreCaught/late", "")+
		line("pass", "TestBrokenStoresAreCaught/late-and-early", "")+
		line("pass", "TestBrokenStoresAreCaught/late/by_a_day", "")+
		line("pass", "TestBrokenStoresAreCaught", "")+
		line("pass", "TestAStoreWithoutASecondListingIsCaught", "")+
		line("pass", "", ""))
	if err != nil || len(p.all) != 4 {
		t.Fatalf("%v: %+v", err, p.all)
	}
	for _, want := range []string{"wakes nobody ", "a watch wakes", "250ms", "a store without a second listing", "backend/dir.TestAStoreWithoutASecondListingIsCaught", "4 broken variants, 4 killed"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// The page shows the command that runs the survivor alone.
func TestASurvivorIsNamed(t *testing.T) {
	p, out, errs, err := shown(t, line("fail", "TestBrokenStoresAreCaught/wakes_nobody", "")+line("fail", "TestBrokenStoresAreCaught", "")+line("fail", "", ""))
	if err != nil || len(p.all) != 1 || !strings.Contains(out, "SURVIVES") || !strings.Contains(out, "1 broken variants, 0 killed") ||
		!strings.Contains(errs, `go test -count=1 -v -run '^TestBrokenStoresAreCaught$/^wakes_nobody$' ./backend/dir`) {
		t.Errorf("%v, %+v:\n%s%s", err, p.all, out, errs)
	}
}

// A test that is skipped because a server is missing shows nothing.
func TestASkippedVariantIsNotKilled(t *testing.T) {
	p, out, _, _ := shown(t, line("output", "TestBrokenStoresAreCaught", "=== RUN   TestBrokenStoresAreCaught")+line("output", "TestBrokenStoresAreCaught", "no server")+line("skip", "TestBrokenStoresAreCaught", "")+line("pass", "", ""))
	if len(p.all) != 1 || p.all[0].Killed || !strings.Contains(out, "SURVIVES: it was not run: no server") {
		t.Errorf("%+v\n%s", p.all, out)
	}
}

// The package did not compile, or ended too early.
func TestAPackageWithoutAVerdictIsAnError(t *testing.T) {
	if _, _, errs, err := shown(t, line("output", "", "cannot find package")+line("fail", "", "")); err == nil || !strings.Contains(errs, "cannot find package") {
		t.Errorf("%v: %s", err, errs)
	}
}

// A suite that ended in the middle, or never began, must not count as run.
func TestASuiteThatIsCutOffIsAnError(t *testing.T) {
	for name, events := range map[string]string{"in the middle": line("pass", "TestBrokenStoresAreCaught/wakes_nobody", ""), "before it began": ""} {
		if _, _, _, err := shown(t, events); err == nil || !strings.Contains(err.Error(), "./backend/dir") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each mistake has a variant in the simulator, but for those that it cannot
// simulate.
func TestEveryMistakeHasAVariant(t *testing.T) {
	elsewhere := 0
	for _, m := range mistakes {
		if _, err := sim.FindMutant(m.variant); err != nil {
			elsewhere++
		}
	}
	if elsewhere != 2 {
		t.Errorf("%d of the mistakes are not the simulator's; two are known to be elsewhere", elsewhere)
	}
}

// The message says that there are only flags.
func TestABadCommandLineIsExplained(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"left"}, &out, &errs); code != 2 || !strings.Contains(errs.String(), "-h") {
		t.Errorf("%d: %s", code, errs.String())
	}
	if code := run(t.Context(), []string{"-h"}, &out, &errs); code != 0 || !strings.Contains(errs.String(), "-quick") {
		t.Errorf("%d: %s", code, errs.String())
	}
}
