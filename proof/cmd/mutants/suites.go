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
	pkg   string // below the module
	place string // what is broken there
	needs bool   // a server, or a program
}

var suites = []suite{
	{"tenure", "law", false},
	{"fence", "law", false},
	{"store/storetest", "store", false},
	{"guard/guardtest", "guard", false},
	{"work/worktest", "ledger", false},
	{"internal/drill", "drill", false},
	{"backend/dir", "directory", false},
	{"backend/sqlite", "SQLite", false},
	{"backend/redis", "Redis", true},
	{"backend/postgres", "PostgreSQL", true},
	{"backend/etcd", "etcd", true},
	{"boundary/http", "proxy", false},
	{"proof/crash", "disk", false},
	{"proof/history", "history", false},
	{"proof/model", "model", true},
}

// tests are the names of those that run broken variants, a subtest each. Their last word on a variant is the line `caught by "the check": what it said`.
const tests = `IsCaught|AreCaught|IsBrokenIsCaught|RejectsBroken|RejectsForgetful|CatchesBroken|Broken(Twins|Guards|Stores)AreFound`

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// trial is a test as it goes on.
type trial struct {
	said    []string
	outcome string
	took    time.Duration
}

// tested runs the suites' tests of broken variants and hands each package to the page when it is done.
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
	_ = c.Wait() // it fails when a variant survives, which the page shows; of what was not run, read has told
	return err
}

// read goes through the events. A suite that is in none of them, or did not come to its end, is an error.
func read(lines *bufio.Scanner, some []suite, p *page) (err error) {
	lines.Buffer(nil, 16<<20)
	trials := map[string]map[string]*trial{}
	said := map[string][]string{} // by a package itself
	done := map[string]bool{}
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // what the go command itself has to say
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

// variants are the tests of a package that have none below them.
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
			continue // it fails for what is below it
		}
		test, part, _ := strings.Cut(name, "/")
		v := variant{
			Place: s.place, Name: strings.ReplaceAll(part, "_", " "), Fast: quickly(t.took),
			Killed: t.outcome == "pass", By: s.pkg + "." + test, Again: again(s.pkg, name),
		}
		if part == "" {
			v.Name = words(test)
		}
		// one of several, the same each time
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

// again is the command that runs one test.
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

// words is what a test with no variants below it tries: TestAStoreThatForgetsIsCaught is "a store that forgets".
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
