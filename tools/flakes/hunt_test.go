package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestEveryPackageRunsOnceBeforeOneRunsTwice(t *testing.T) {
	tracks := []*track{{pkg: &pkg{name: "a"}}, {pkg: &pkg{name: "b"}}, {pkg: &pkg{name: "c"}}}
	var order string
	for range tracks {
		next := choose(tracks, 0, time.Time{})
		next.begun, next.ended, next.spent, next.shortest = 1, 1, time.Millisecond, time.Millisecond
		order += next.name
	}
	if order != "abc" {
		t.Errorf("the order was %s, want abc", order)
	}
}

func TestAPackageThatTakesAHundredTimesAsLongRunsATenthAsOften(t *testing.T) {
	took := map[string]time.Duration{"short": 100 * time.Millisecond, "long": 10 * time.Second}
	tracks := []*track{{pkg: &pkg{name: "short"}}, {pkg: &pkg{name: "long"}}}
	for range 1100 {
		next := choose(tracks, 0, time.Time{})
		next.begun++
		next.spent += took[next.name]
	}
	if long := tracks[1].begun; long < 90 || long > 110 {
		t.Errorf("the long one ran %d times of 1100, want about 100", long)
	}
}

func TestAPackageIsPassedOver(t *testing.T) {
	soon := time.Now().Add(time.Minute)
	ready := func() *track { return &track{begun: 5, spent: time.Hour, shortest: time.Second} }
	for name, passedOver := range map[string]*track{
		"while it runs":                 {begun: 1, running: true},
		"when no test of it matches":    {begun: 1, empty: true},
		"when it has had its runs":      {begun: 9},
		"when it would not end by then": {begun: 1, shortest: time.Hour},
	} {
		other := ready()
		if choose([]*track{passedOver, other}, 9, soon) != other {
			t.Errorf("it is chosen %s", name)
		}
	}
	late := &track{begun: 1, shortest: time.Hour}
	if choose([]*track{late}, 0, soon) != late {
		t.Error("time is wasted that a cut run could use")
	}
	if choose([]*track{{begun: 1, running: true}}, 0, soon) != nil {
		t.Error("a package runs beside itself")
	}
}

func TestNeighboursEndWithTheHunter(t *testing.T) {
	var n neighbours
	for _, kind := range []string{"busy", t.TempDir()} {
		if err := n.start(kind); err != nil {
			t.Fatal(err)
		}
	}
	for i, stdin := range n.stdins {
		stdin.Close() // as the kernel does when the hunter is killed
		if err := n.commands[i].Wait(); err != nil {
			t.Errorf("a neighbour ended with %v", err)
		}
	}
}

func TestProcessesLeftBehindAreEnded(t *testing.T) {
	if !canStop {
		t.Skip("there are no process groups here")
	}
	cmd := exec.Command("sleep", "600")
	own(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !endLeftovers(cmd.Process.Pid, "nowhere", 0) {
		t.Error("a process of the group was not seen")
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	if endLeftovers(cmd.Process.Pid, "nowhere", 0) {
		t.Error("a process of the group is seen after its end")
	}
}

func TestOutputTellsTestsApart(t *testing.T) {
	o := &outcome{byName: map[string]*test{}}
	for _, e := range [][3]string{
		{"run", "TestA"},
		{"run", "TestA/x"},
		{"output", "TestA/x", "    a_test.go:1: wrong\n"},
		{"fail", "TestA/x"},
		{"fail", "TestA"},
		{"run", "TestB"},
		{"pass", "TestB"},
		{"run", "TestC"},
		{"pause", "TestC"},
		{"run", "TestD"},
	} {
		o.add(e[0], e[1], e[2])
	}
	names := func(all []failure) (found string) {
		for _, f := range all {
			found += f.name() + " "
		}
		return found
	}
	if got := names(o.failures("exit status 1", false)); got != "TestA/x TestD " {
		t.Errorf("failed: %s; want the subtest and the running one", got)
	}
	if got := names(o.failures("signal: killed", true)); got != "TestA/x " {
		t.Errorf("failed in a run cut short: %s; want only what failed before", got)
	}
}

func TestTheLinesOfAFailureAreItsLast(t *testing.T) {
	lines := []string{"    a_test.go:1: one\n", "    a_test.go:2: two\n", "    a_test.go:3: three\n"}
	if got := strings.Join(ends(lines), "|"); got != "a_test.go:1: one|a_test.go:2: two|a_test.go:3: three" {
		t.Errorf("a few lines became %q", got)
	}
	lines = append(lines, "    a_test.go:4: four\n", "    a_test.go:5: why\n", "noise of a server\n")
	want := "a_test.go:1: one|...|a_test.go:3: three|a_test.go:4: four|a_test.go:5: why"
	if got := strings.Join(ends(lines), "|"); got != want {
		t.Errorf("many lines became %q, want %q", got, want)
	}
}
