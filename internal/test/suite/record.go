package suite

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// Record runs a check to its end and cleans up after it. It returns what the
// check reported, also a panic, and does not fail t.
func Record(t testing.TB, check func(tb testing.TB)) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() { // its own goroutine, because a failed check calls Goexit
		defer close(done)
		defer r.recovered()
		defer r.clean()
		defer cancel() // before the clean-ups, as tests do
		defer r.recovered()
		check(r)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said
}

// recorder takes the place of a *testing.T. It records failures instead of
// failing. The methods that it does not override, such as TempDir and Name, are
// those of the real test.
type recorder struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	said     []string
	cleanups []func()
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, text)
}

// recovered notes a panic.
func (r *recorder) recovered() {
	if p := recover(); p != nil {
		r.note(fmt.Sprintf("panic: %v", p))
	}
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.said) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// clean calls the clean-ups, the last one first, and also those that they add.
// It goes on if one of them ends the goroutine.
func (r *recorder) clean() {
	r.mu.Lock()
	n := len(r.cleanups)
	if n == 0 {
		r.mu.Unlock()
		return
	}
	last := r.cleanups[n-1]
	r.cleanups = r.cleanups[:n-1]
	r.mu.Unlock()
	defer r.clean()
	last()
}

func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Helper()                  {}
func (r *recorder) Log(...any)               {}
func (r *recorder) Logf(string, ...any)      {}

func (r *recorder) Fail()                             { r.note("failed") }
func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skip(...any)          { runtime.Goexit() }
func (r *recorder) Skipf(string, ...any) { runtime.Goexit() }
func (r *recorder) SkipNow()             { runtime.Goexit() }
