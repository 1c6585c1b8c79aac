package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// outcome has the result of each test in a run.
type outcome struct {
	tests  []*test // in the order in which they began
	byName map[string]*test
	text   strings.Builder // the whole output
	rest   []string        // lines that belong to no test
}

// A test is a test or subtest in one run of its binary, which may run it more
// than once.
type test struct {
	name  string
	state string // the last action of test2json: run, pause, cont, pass, fail, skip
	runs  int    // finished runs
	fails int
	lines []string // of its first failure, or of its last run
}

// ended reports whether the test has printed how it ended.
func (t *test) ended() bool { return t.state == "pass" || t.state == "fail" || t.state == "skip" }

// running reports whether the test was in the middle of its work. A parallel
// test that waits for its turn was not.
func (t *test) running() bool { return !t.ended() && t.state != "pause" }

// A failure is a failed test of a run, or the failure of the run as a whole.
type failure struct {
	test  string // empty: no single test can be blamed
	times int
	lines []string
}

// read lets test2json parse the output of a run.
func (h *hunter) read(output io.Reader, r *run) (*outcome, error) {
	cmd := exec.Command(h.test2json, "-p", r.pkg.path)
	cmd.Stdin = output
	own(cmd)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("test2json: %w", err)
	}
	return readEvents(bytes.NewReader(out))
}

// readEvents reads the output of test2json.
func readEvents(in io.Reader) (*outcome, error) {
	o := &outcome{byName: map[string]*test{}}
	for d := json.NewDecoder(in); ; {
		var e struct{ Action, Test, Output string }
		err := d.Decode(&e)
		if errors.Is(err, io.EOF) {
			return o, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the output of test2json: %w", err)
		}
		o.add(e.Action, e.Test, e.Output)
	}
}

// add counts one event.
func (o *outcome) add(action, name, output string) {
	o.text.WriteString(output)
	if name == "" {
		if action == "output" {
			o.rest = append(o.rest, output)
		}
		return
	}
	t := o.byName[name]
	if t == nil {
		t = &test{name: name, state: "run"}
		o.byName[name], o.tests = t, append(o.tests, t)
	}
	switch action {
	case "output":
		trimmed := strings.TrimSpace(output)
		framed := strings.HasPrefix(trimmed, "=== ") || strings.HasPrefix(trimmed, "--- ")
		if t.fails == 0 && trimmed != "" && !framed {
			t.lines = append(t.lines, output)
		}
		return
	case "run":
		if t.fails == 0 {
			t.lines = nil
		}
	case "pass":
		t.runs++
	case "fail":
		t.runs++
		t.fails++
	case "pause", "cont", "skip":
	default:
		return
	}
	t.state = action
}

// failures returns the failed tests. end says how the process ended, empty if
// it ended well. A binary that ends badly, or before its tests, has failed, and
// so have the tests that were running. A test that is cut short by the end of
// the hunt has not.
func (o *outcome) failures(end string, cut bool) []failure {
	failed := map[string]int{}
	for _, t := range o.tests {
		times := t.fails
		if t.running() && !cut {
			times++
		}
		if times > 0 {
			failed[t.name] = times
		}
	}
	var found []failure
	for _, t := range o.tests {
		if times := failed[t.name]; times > 0 && !aChildFailed(t.name, failed) {
			found = append(found, failure{t.name, times, o.tell(t, end)})
		}
	}
	if len(found) == 0 && end != "" && !cut {
		found = append(found, failure{"", 1, append(crash(o.lines()), "the test binary ended with "+end)})
	}
	return found
}

// aChildFailed reports whether a subtest of a test failed. Then that is the
// reason why the test failed.
func aChildFailed(name string, failed map[string]int) bool {
	for other := range failed {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

// tell returns a few lines that say why a test failed.
func (o *outcome) tell(t *test, end string) []string {
	if t.fails > 0 {
		return ends(t.lines)
	}
	told := crash(o.lines())
	if end == "" {
		end = "exit status 0"
	}
	return append([]string{"was running when the test binary ended with " + end}, told...)
}

// lines returns all lines of the output.
func (o *outcome) lines() []string { return strings.SplitAfter(o.text.String(), "\n") }

// crash returns the lines in which a Go program reports its crash.
func crash(lines []string) []string {
	for i, l := range lines {
		for _, sign := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE", "SIGSEGV", "runtime: "} {
			if strings.HasPrefix(l, sign) {
				return first(lines[i:])
			}
		}
	}
	return nil
}

// logged matches lines printed by t.Log and t.Error.
var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// ends shortens the output of a failed test to the lines that most likely say
// why: the first line, and the last lines that the test itself printed. A test
// logs its steps, and the failure comes last.
func ends(lines []string) []string {
	const last = 3
	own := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !logged.MatchString(l) })
	if len(own) <= last+1 {
		return first(lines)
	}
	return slices.Concat(first(own[:1]), []string{"..."}, first(own[len(own)-last:]))
}

// first shortens lines to as many as fit in a table.
func first(lines []string) []string {
	const most, widest = 4, 200
	var kept []string
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l == "" {
			continue
		}
		if len(kept) == most {
			return append(kept, "...")
		}
		if short := []rune(l); len(short) > widest {
			l = string(short[:widest]) + "..."
		}
		kept = append(kept, l)
	}
	return kept
}
