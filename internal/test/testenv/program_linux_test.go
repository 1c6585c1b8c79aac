package testenv_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// A process forked in that time would hold the file open, and the program could
// not be executed. The program is a pipe here, so that the test knows when it
// is half written.
func TestNoProcessIsForkedWhileAProgramIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("x"), 1<<20) // more than fits into a pipe
	for name, c := range map[string]struct {
		write func()
		forks bool
	}{
		"WriteProgram": {func() { testenv.WriteProgram(t, path, content, 0o700) }, false},
		"WriteFile":    {func() { _ = os.WriteFile(path, content, 0o700) }, true}, // the check sees the difference
	} {
		written := make(chan struct{})
		go func() {
			defer close(written)
			c.write()
		}()
		r, err := os.Open(path) // waits until the writer has opened it
		if err != nil {
			t.Fatal(err)
		}
		forks := syscall.ForkLock.TryLock()
		if forks {
			syscall.ForkLock.Unlock()
		}
		if forks != c.forks {
			t.Errorf("a process can be forked while %s has a program open: %v, want %v", name, forks, c.forks)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s wrote %d bytes of %d (%v)", name, len(got), len(content), err)
		}
		<-written
		_ = r.Close()
	}
}

// It must also replace an older program.
func TestAWrittenProgramHasItsModeAndRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	for _, said := range []string{"one, and more", "two"} {
		testenv.WriteProgram(t, path, []byte("#!/bin/sh\necho "+said+"\n"), 0o757|os.ModeSetuid)
		if out, err := exec.Command(path).CombinedOutput(); err != nil || string(out) != said+"\n" {
			t.Errorf("the program says %q, %v", out, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o757|os.ModeSetuid {
			t.Errorf("the program's mode is %v (%v)", info.Mode(), err)
		}
	}
}
