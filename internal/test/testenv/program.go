package testenv

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// WriteProgram writes a file that the test will execute: a script, or a copy
// of a program. mode is the file's mode whatever the umask is.
//
// A plain os.WriteFile is not enough. While the file is open for writing,
// another test may fork, and the new process has a copy of the descriptor
// until it calls exec. The kernel refuses to execute the file during that time
// (ETXTBSY, "text file busy"). So no process is forked while the file is open.
func WriteProgram(tb testing.TB, path string, content []byte, mode fs.FileMode) {
	tb.Helper()
	if err := writeProgram(path, content, mode); err != nil {
		tb.Fatalf("testenv: writing a program: %v", err)
	}
}

func writeProgram(path string, content []byte, mode fs.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	// A write takes the setuid bit away: the mode comes after it.
	return errors.Join(err, f.Chmod(mode), f.Close())
}
