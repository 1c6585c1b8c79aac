package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// suite is a package whose tests run broken variants.
type suite struct {
	pkg   string // path below the module
	part  string // the broken part
	needs bool   // needs a server or another program
}

var suites = []suite{
	{"tenure", "law", false},
	{"fence", "law", false},
	{"store/storetest", "store", false},
	{"guard/guardtest", "guard", false},
	{"work/worktest", "ledger", false},
	{"internal/drill", "drill", false},
	{"backend/dir", "directory", false},
	{"backend/file", "file", false},
	{"backend/sqlite", "SQLite", false},
	{"backend/redis", "Redis", true},
	{"backend/postgres", "PostgreSQL", true},
	{"backend/etcd", "etcd", true},
	{"boundary/httpfence", "proxy", false},
	{"boundary/mcp", "MCP proxy", false},
	{"proof/crash", "disk", false},
	{"proof/history", "history", false},
	{"proof/model", "model", true},
}

// tests matches the names of tests that run broken variants, each in a subtest.
// Such a test logs `caught by "the check": what it said`.
const tests = `IsCaught|AreCaught|RejectsBroken|RejectsForgetful|CatchesBroken|` +
	`Broken(Twins|Guards|Stores)AreFound`

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// trial collects the events of one test.
type trial struct {
	said    []string
	outcome string
	took    time.Duration
}

// tested runs the tests of broken variants, and passes each package to the page
// when it is done.
func tested(ctx context.Context, some []suite, p *page) error {
	args := []string{"test", "-json", "-count=1", "-timeout=15m", "-run", tests}
	for _, s := range some {
		args = append(args, "./"+s.pkg)
	}
	c := exec.CommandContext(ctx, "go", args...)
	c.Stderr = p.err
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("the suites: %w", err)
	}
	err = read(bufio.NewScanner(out), some, p)
	_, _ = io.Copy(io.Discard, out)
	// It fails if a variant survives. The page shows survivors, and read has
	// reported packages that did not run.
	_ = c.Wait()
	return err
}

// read reads the events of go test. It returns an error if a suite did not run,
// or did not finish.
func read(lines *bufio.Scanner, some []suite, p *page) (err error) {
	lines.Buffer(nil, 16<<20)
	trials := map[string]map[string]*trial{}
	said := map[string][]string{} // the output of a package itself
	done := map[string]bool{}
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // a message of the go command itself
		}
		i := slices.IndexFunc(some, func(s suite) bool { return strings.HasSuffix(e.Package, "/"+s.pkg) })
		if i < 0 {
			continue
		}
		s := some[i]
		if trials[s.pkg] == nil {
			trials[s.pkg] = map[string]*trial{}
		}
		over := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"
		switch {
		case e.Test == "" && e.Action == "output":
			said[s.pkg] = append(said[s.pkg], e.Output)
		case e.Test == "" && over:
			done[s.pkg] = true
			found, broken := s.variants(trials[s.pkg])
			p.block(s.pkg, found)
			if e.Action == "fail" && !broken || len(found) == 0 {
				p.tell(p.err, "%s\n", strings.Join(said[s.pkg], ""))
				err = errors.Join(err, fmt.Errorf(
					"%s ended without a verdict on its variants; again: go test -v -run '%s' ./%s",
					s.pkg, tests, s.pkg,
				))
			}
		case e.Test != "":
			t := trials[s.pkg][e.Test]
			if t == nil {
				t = &trial{}
				trials[s.pkg][e.Test] = t
			}
			if e.Action == "output" {
				t.said = append(t.said, e.Output)
			}
			if over {
				t.outcome, t.took = e.Action, time.Duration(e.Elapsed*float64(time.Second))
			}
		}
	}
	for _, s := range some {
		if !done[s.pkg] {
			err = errors.Join(err, fmt.Errorf(
				"%s was not run to its end; again: go test -v -run '%s' ./%s", s.pkg, tests, s.pkg,
			))
		}
	}
	return errors.Join(err, lines.Err())
}

var caughtBy = regexp.MustCompile(`caught by "((?:[^"\\]|\\.)*)"`)

// variants returns one variant for each test without subtests. A test with
// subtests counts only if it failed though all of them passed.
func (s suite) variants(trials map[string]*trial) (found []variant, broken bool) {
	names := make([]string, 0, len(trials))
	for name := range trials {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t := trials[name]
		below := func(n string) bool { return strings.HasPrefix(n, name+"/") }
		if slices.ContainsFunc(names, below) && t.outcome == "pass" {
			continue
		}
		if slices.ContainsFunc(names, func(n string) bool { return below(n) && trials[n].outcome != "pass" }) {
			continue // it fails because of a subtest
		}
		test, part, _ := strings.Cut(name, "/")
		v := variant{
			Part: s.part, Name: strings.ReplaceAll(part, "_", " "), Fast: quickly(t.took),
			Killed: t.outcome == "pass", By: s.pkg + "." + test, Again: again(s.pkg, name),
		}
		if part == "" {
			v.Name = words(test)
		}
		// Several checks may catch it. Always take the first by name.
		if by := caughtBy.FindAllStringSubmatch(strings.Join(t.said, ""), -1); by != nil {
			v.By = strings.ReplaceAll(
				slices.MinFunc(by, func(a, b []string) int { return strings.Compare(a[1], b[1]) })[1],
				`\"`, `"`,
			)
		}
		if !v.Killed {
			broken, v.By = true, ""
		}
		if t.outcome == "skip" {
			v.By = "it was not run: " + strings.TrimSpace(strings.Join(t.said[min(1, len(t.said)):], " "))
		}
		found = append(found, v)
	}
	return found, broken
}

// again returns the command that runs one test.
func again(pkg, test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return fmt.Sprintf(
		"go test -count=1 -v -run '%s' ./%s",
		strings.ReplaceAll(strings.Join(parts, "/"), "'", "."), pkg,
	)
}

// words turns the name of a test without subtests into words:
// TestAStoreThatForgetsIsCaught becomes "a store that forgets".
func words(test string) string {
	test = strings.TrimPrefix(test, "Test")
	for _, end := range []string{"IsCaught", "AreCaught"} {
		test = strings.TrimSuffix(test, end)
	}
	var b strings.Builder
	for i, r := range test {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
