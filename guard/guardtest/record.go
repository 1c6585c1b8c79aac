package guardtest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Failures runs every check without failing t and returns what the failed ones had to say, by the check's name. It is for tests of the
// suite: a guard that is broken on purpose must fail.
func Failures(t testing.TB, h Harness) map[string][]string {
	t.Helper()
	failures := map[string][]string{}
	for _, c := range checks {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					r.Errorf("panic: %v", p)
				}
			}()
			c.run(r, h)
		}()
		<-done
		if said := r.failure(); said != nil {
			failures[c.name] = said
		}
	}
	return failures
}

// recorder is a testing.TB that keeps failures to itself. What it does not override (TempDir, Cleanup, Context) is the real test's.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	said   []string
}

func (r *recorder) say(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if failed {
		r.failed = true
		r.said = append(r.said, strings.TrimSuffix(text, "\n"))
	}
}

func (r *recorder) failure() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		return nil
	}
	return append([]string{}, r.said...)
}

func (r *recorder) Failed() bool { return r.failure() != nil }

func (r *recorder) Error(args ...any)                 { r.say(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.say(true, fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.say(true, "failed") }
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}

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
