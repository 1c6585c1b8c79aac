package worktest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// Failures runs the checks of the named groups, or all checks if none is named, without failing t, and returns what the failed ones had to say, by "group/check". It is for tests of the suite: a ledger that is broken on purpose must fail.
func Failures(t testing.TB, place func(tb testing.TB) Harness, groups ...string) map[string][]string {
	t.Helper()
	for _, name := range groups {
		if !slices.ContainsFunc(suite(), func(g group) bool { return g.name == name }) {
			t.Fatalf("worktest: there is no group %q", name)
		}
	}
	failures := map[string][]string{}
	for _, g := range suite() {
		if len(groups) > 0 && !slices.Contains(groups, g.name) {
			continue
		}
		for _, c := range g.checks {
			if said := record(t, c, place); len(said) > 0 {
				failures[g.name+"/"+c.name] = said
			}
		}
	}
	return failures
}

// recorder stands in for a *testing.T whose failure is the point: it notes what a check reports instead of failing.
type recorder struct {
	testing.TB // the test that runs the check; for what is not overridden
	ctx        context.Context

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// record runs a check on a place and returns what it reported.
func record(t testing.TB, c check, place func(tb testing.TB) Harness) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &recorder{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.note(fmt.Sprintf("panic: %v", p))
			}
		}()
		defer r.clean() // also when FailNow ends the goroutine
		c.run(newTrial(r, place(r)))
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}

func (r *recorder) clean() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, text)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Helper()                  {}
func (r *recorder) Log(...any)               {}
func (r *recorder) Logf(string, ...any)      {}
func (r *recorder) Error(args ...any)        { r.note(fmt.Sprint(args...)) }
func (r *recorder) Fail()                    { r.note("failed") }
func (r *recorder) Fatal(args ...any)        { r.note(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Skip(args ...any)         { runtime.Goexit() }

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.note(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
