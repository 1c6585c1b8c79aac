package chaos

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// ErrMissing matches errors of runs whose server program is not installed.
var ErrMissing = errors.New("a server is missing")

// stand implements testing.TB for programs, so that they can use the servers of
// the tests. Servers may be killed and started from any goroutine. A failure
// becomes an error instead of the end of a test; see try.
type stand struct {
	testing.TB
	mu       sync.Mutex
	cleanups []func()
}

type stopped struct{ err error }

// try runs a function that may call Fatal or Skip, and returns that as an
// error.
func (s *stand) try(what func()) (err error) {
	defer func() {
		why := recover()
		if stop, ok := why.(*stopped); ok {
			err = stop.err
		} else if why != nil {
			panic(why)
		}
	}()
	what()
	return nil
}

func (s *stand) Helper() {}

func (s *stand) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *stand) Fatal(args ...any)                 { panic(&stopped{errors.New(fmt.Sprint(args...))}) }
func (s *stand) Fatalf(format string, args ...any) { panic(&stopped{fmt.Errorf(format, args...)}) }

func (s *stand) Skipf(format string, args ...any) {
	panic(&stopped{fmt.Errorf("%w: "+format, append([]any{ErrMissing}, args...)...)})
}

func (s *stand) TempDir() string {
	dir, err := os.MkdirTemp("", "croft-chaos-")
	if err != nil {
		s.Fatalf("a folder for a server: %w", err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// end stops the servers and removes their folders.
func (s *stand) end() {
	for {
		s.mu.Lock()
		if len(s.cleanups) == 0 {
			s.mu.Unlock()
			return
		}
		last := len(s.cleanups) - 1
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		s.mu.Unlock()
		f()
	}
}
