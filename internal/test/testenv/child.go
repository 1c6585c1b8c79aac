package testenv

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Child is a process that does one part of a test, and reports to the test in
// lines.
type Child struct {
	Cmd *exec.Cmd
	In  io.WriteCloser // its standard input
	out *bufio.Scanner
}

// StartChild starts a child. If it still runs at the end of the test, it is
// killed.
func StartChild(tb testing.TB, cmd *exec.Cmd) *Child {
	tb.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &Child{Cmd: cmd, In: in, out: bufio.NewScanner(out)}
}

// said begins the lines for the test, to tell them from the testing package's.
const said = "child: "

// Say reports something to the test. The child calls it.
func Say(words ...any) { fmt.Print(said, fmt.Sprintln(words...)) }

// Hear returns the next report of the child, "" if it has ended.
func (c *Child) Hear() string {
	for c.out.Scan() {
		if text, ok := strings.CutPrefix(c.out.Text(), said); ok {
			return text
		}
	}
	return ""
}

// Expect fails the test if the child's next report is another one.
func (c *Child) Expect(tb testing.TB, want string) {
	tb.Helper()
	if got := c.Hear(); got != want {
		tb.Fatalf("a child says %q, want %q", got, want)
	}
}
