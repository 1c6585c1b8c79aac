package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	ImportPath  string // set for events of a build
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// run is one call of go test, as far as its events tell.
type run struct {
	args     []string
	module   string // the prefix of its packages' import paths
	began    time.Time
	packages map[string]*pkg
	order    []*pkg // in the order in which they ended
	builds   map[string]*strings.Builder
}

// pkg is one package under test.
type pkg struct {
	path    string
	began   time.Time
	took    time.Duration
	outcome string // pass, fail, skip, or empty while it runs
	build   string // the package whose build failed, if one did
	output  output
	tests   map[string]*test
	order   []*test // in the order in which they began
}

// test is one test or subtest.
type test struct {
	name    string
	began   time.Time
	took    time.Duration
	outcome string // pass, fail, skip, or empty while it runs
	paused  bool   // it waits for its turn among parallel tests
	output  output
}

func newRun(module string, args []string) *run {
	return &run{
		args: args, module: module, began: time.Now(),
		packages: map[string]*pkg{}, builds: map[string]*strings.Builder{},
	}
}

// event handles an event. It writes lines for people to out at once.
func (r *run) event(e event, out io.Writer) {
	switch e.Action {
	case "build-output":
		if r.builds[e.ImportPath] == nil {
			r.builds[e.ImportPath] = &strings.Builder{}
		}
		r.builds[e.ImportPath].WriteString(e.Output)
		return
	case "build-fail":
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{path: e.Package, began: e.Time, tests: map[string]*test{}}
		r.packages[e.Package] = p
	}
	if e.Test == "" {
		r.packageEvent(p, e, out)
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &test{name: e.Test, began: e.Time}
		p.tests[e.Test] = t
		p.order = append(p.order, t)
	}
	switch e.Action {
	case "output":
		t.output.add(e.Output)
	case "pause", "cont":
		t.paused = e.Action == "pause"
	case "pass", "fail", "skip":
		t.outcome, t.took = e.Action, seconds(e.Elapsed)
		if e.Action == "fail" && !strings.Contains(t.name, "/") {
			fmt.Fprintf(out, "FAIL %7.1fs  %s %s\n", e.Elapsed, r.short(p), t.name)
		}
		if e.Action == "pass" {
			t.output = output{} // no longer needed
		}
	}
}

func (r *run) packageEvent(p *pkg, e event, out io.Writer) {
	switch e.Action {
	case "output":
		p.output.add(e.Output)
	case "pass", "fail", "skip":
		p.outcome, p.took, p.build = e.Action, seconds(e.Elapsed), e.FailedBuild
		r.order = append(r.order, p)
		word := "ok  "
		switch {
		case e.Action == "fail":
			word = "FAIL"
		case len(p.tests) == 0:
			return // no tests
		}
		fmt.Fprintf(out, "%s %7.1fs  %s, %d tests\n", word, e.Elapsed, r.short(p), len(p.tests))
	}
}

// waiting prints the running tests and their durations: the oldest of each
// package.
func (r *run) waiting(out io.Writer, now time.Time) {
	var names []string
	for _, p := range r.packages {
		if p.outcome != "" {
			continue
		}
		name := r.short(p)
		if t := p.oldest(); t != nil {
			name += fmt.Sprintf(" %s for %.0fs", t.name, now.Sub(t.began).Seconds())
		}
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(out, "... %7.0fs  %d packages done; running: %s\n",
		now.Sub(r.began).Seconds(), len(r.order), strings.Join(names, "; "))
}

// oldest returns the test that has been running longest.
func (p *pkg) oldest() *test {
	for _, t := range p.order {
		if t.outcome == "" && !t.paused && !strings.Contains(t.name, "/") {
			return t
		}
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// short returns a package as a folder in the module: ./backend/redis.
func (r *run) short(p *pkg) string {
	if rest, ok := strings.CutPrefix(p.path, r.module); ok && (rest == "" || rest[0] == '/') {
		return "." + rest
	}
	return p.path
}
