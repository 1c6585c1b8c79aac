package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// recorder stands in for a *testing.T whose failure is the point: it notes what a check reports instead of failing.
type recorder struct {
	testing.TB // the test that runs the check; for what is not overridden
	ctx        context.Context

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// record runs a check on a place and returns what it reported.
func record(t *testing.T, c check, place func(tb testing.TB) Harness) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &recorder{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("the suite panicked in %q: %v", c.name, p)
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

func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Helper()                  {}
func (r *recorder) Log(...any)               {}
func (r *recorder) Logf(string, ...any)      {}
func (r *recorder) Error(args ...any)        { r.note(fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any)        { r.note(fmt.Sprint(args...)); r.FailNow() }
func (r *recorder) FailNow()                 { runtime.Goexit() }

func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.note(fmt.Sprintf(format, args...))
	r.FailNow()
}
