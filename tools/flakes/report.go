package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// A tally counts the runs and failures of a hunt.
type tally struct {
	options  *options
	began    time.Time
	took     time.Duration
	runs     int // finished runs of binaries
	failures int
	packages []*packageTally
	tests    map[testKey]*testTally
}

type testKey struct{ pkg, test string }

// A packageTally is the row of a package in the table.
type packageTally struct {
	Package  string  `json:"package"`
	Runs     int     `json:"runs"`
	Failures int     `json:"failures"` // runs that failed
	Cut      int     `json:"cut"`      // runs cut short by the end of the hunt
	Tests    int     `json:"tests"`
	Slowest  float64 `json:"slowest_seconds"`
	spent    time.Duration
}

// A testTally is the row of a test in the table. An empty Test is the package:
// a failure that no single test can be blamed for.
type testTally struct {
	Package  string      `json:"package"`
	Test     string      `json:"test"`
	Runs     int         `json:"runs"`
	Failures int         `json:"failures"`
	Rate     float64     `json:"rate"`
	Failed   []failedRun `json:"failed"`
	Again    string      `json:"again"` // hunts this test alone
	Plain    string      `json:"plain"` // runs it once, with the seed of the first failure
	pkg      *pkg
}

// A failedRun is one failure of a test.
type failedRun struct {
	Seed    int64    `json:"seed"`
	CPU     int      `json:"cpu"`
	Stops   int      `json:"stops"`
	Elapsed float64  `json:"elapsed_seconds"`
	File    string   `json:"file"`
	Lines   []string `json:"lines"`
}

// A result is all that a hunt has found.
type result struct {
	Runs     int             `json:"runs"` // of tests
	Tests    int             `json:"tests"`
	Packages int             `json:"packages"`
	Failures int             `json:"failures"`
	Binaries int             `json:"binary_runs"`
	Seconds  float64         `json:"seconds"`
	Folder   string          `json:"folder,omitempty"`
	Failing  []*testTally    `json:"failing"`
	Each     []*packageTally `json:"each"`
	NotRun   []string        `json:"not_run,omitempty"`
}

func newTally(o *options) *tally { return &tally{options: o, tests: map[testKey]*testTally{}} }

// know adds a package that may run.
func (t *tally) know(p *pkg) { t.packages = append(t.packages, &packageTally{Package: p.name}) }

// add counts a run.
func (t *tally) add(r *run, failures []failure) {
	i := slices.IndexFunc(t.packages, func(p *packageTally) bool { return p.Package == r.pkg.name })
	p := t.packages[i]
	if r.cut {
		p.Cut++
	} else {
		t.runs++
		p.Runs++
		p.spent += r.elapsed
		p.Slowest = max(p.Slowest, r.elapsed.Seconds())
	}
	for _, one := range r.outcome.tests {
		runs := one.runs
		if one.running() && !r.cut {
			runs++
		}
		if runs > 0 {
			t.at(r.pkg, one.name).Runs += runs
		}
	}
	if len(failures) > 0 {
		p.Failures++
	}
	for _, f := range failures {
		t.failures += f.times
		row := t.at(r.pkg, f.test)
		if f.test == "" {
			row.Runs = p.Runs
		}
		row.Failures += f.times
		row.Failed = append(row.Failed, failedRun{r.seed, r.cpu, r.stops, r.elapsed.Seconds(), r.file, f.lines})
	}
}

// at returns the row of a test.
func (t *tally) at(p *pkg, test string) *testTally {
	key := testKey{p.name, test}
	if t.tests[key] == nil {
		t.tests[key] = &testTally{Package: p.name, Test: test, pkg: p}
	}
	return t.tests[key]
}

// result sums up the tally. folder has the output of failed runs.
func (t *tally) result(folder string) *result {
	r := &result{Failures: t.failures, Binaries: t.runs, Seconds: t.took.Seconds(), Failing: []*testTally{}}
	byPackage := map[string]int{}
	for _, row := range t.tests {
		r.Runs += row.Runs
		if row.Test != "" {
			r.Tests++
			byPackage[row.Package]++
		} else {
			r.Runs -= row.Runs // these are runs of binaries, not of tests
		}
		if row.Failures > 0 {
			row.Rate = float64(row.Failures) / float64(max(row.Runs, row.Failures))
			row.Again, row.Plain = row.commands(t.options)
			r.Failing = append(r.Failing, row)
			r.Folder = folder
		}
	}
	slices.SortFunc(r.Failing, func(a, b *testTally) int {
		return cmp.Or(
			cmp.Compare(b.Failures, a.Failures), cmp.Compare(a.Package, b.Package),
			cmp.Compare(a.Test, b.Test),
		)
	})
	for _, p := range t.packages {
		p.Tests = byPackage[p.Package]
		if p.Runs+p.Cut == 0 {
			r.NotRun = append(r.NotRun, p.Package)
			continue
		}
		r.Packages++
		r.Each = append(r.Each, p)
	}
	return r
}

// nothing reports whether every package ran and none had a test to run.
func (r *result) nothing() bool {
	cut := slices.ContainsFunc(r.Each, func(p *packageTally) bool { return p.Cut > 0 })
	return r.Tests == 0 && len(r.NotRun) == 0 && !cut
}

// print prints the table.
func (r *result) print(w io.Writer) {
	say(w, "")
	if len(r.Failing) > 0 {
		say(w, "FAILED")
	}
	for _, f := range r.Failing {
		say(w, "%s %s: %d of %s, %.3g %%", f.Package, name(f.Test), f.Failures, plural(f.Runs, "run"), 100*f.Rate)
		for _, l := range f.Failed[0].Lines {
			say(w, "    %s", l)
		}
		more := ""
		if n := len(f.Failed) - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more)", n)
		}
		say(w, "  output  %s%s", f.Failed[0].File, more)
		say(w, "  hunt    %s", f.Again)
		say(w, "  once    %s", f.Plain)
		say(w, "")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	say(table, "runs\tfailed\tcut short\ttests\tmean\tslowest\t  package")
	for _, p := range r.Each {
		mean, slowest := "-", "-"
		if p.Runs > 0 {
			mean = brief(p.spent / time.Duration(p.Runs))
			slowest = brief(time.Duration(p.Slowest * float64(time.Second)))
		}
		say(table, "%d\t%d\t%d\t%d\t%s\t%s\t  %s", p.Runs, p.Failures, p.Cut, p.Tests, mean, slowest, p.Package)
	}
	_ = table.Flush()
	if len(r.NotRun) > 0 {
		say(w, "\nNOT RUN, for lack of time: %s", strings.Join(r.NotRun, " "))
	}
	say(w, "\n%s of %s in %s, %s", plural(r.Runs, "run"), plural(r.Tests, "test"), plural(r.Packages, "package"),
		plural(r.Failures, "failure"))
}

// write writes the result as JSON.
func (r *result) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// commands returns the two commands that run a test alone: again and again
// under load, and once with the seed of its first failure.
func (t *testTally) commands(o *options) (again, plain string) {
	first := t.Failed[0]
	pattern := o.run
	if t.Test != "" {
		pattern = exactly(t.Test)
	}
	hunt, once := t.Package, fmt.Sprintf("-count=1 -shuffle=%d -cpu=%d -parallel=%d -timeout=%s %s",
		first.Seed, first.CPU, parallel, o.timeout, t.pkg.local)
	if o.each > 1 {
		hunt = fmt.Sprintf("-each %d %s", o.each, hunt)
	}
	if pattern != "" {
		hunt = fmt.Sprintf("-run %s %s", strings.ReplaceAll(pattern, "$", "$$"), hunt)
		once = fmt.Sprintf("-run '%s' %s", pattern, once)
	}
	flags := strings.Join(append([]string{""}, o.build...), " ")
	test := "go test"
	if t.pkg.module != "." {
		test = "GOWORK=off go test -C " + t.pkg.module
	}
	return fmt.Sprintf("make flakes FLAKESFLAGS='%s'", hunt), fmt.Sprintf("CI=true %s%s %s", test, flags, once)
}

// exactly returns the -run pattern that matches one test. Characters that are
// special to a shell or to make become dots, which match them, too.
func exactly(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + strings.Map(func(c rune) rune {
			if unicode.IsLetter(c) || unicode.IsDigit(c) || c == '_' || c == '-' {
				return c
			}
			return '.'
		}, p) + "$"
	}
	return strings.Join(parts, "/")
}

// name returns the name of a failure.
func (f *failure) name() string { return name(f.test) }

func name(test string) string {
	if test == "" {
		return "(no single test)"
	}
	return test
}
