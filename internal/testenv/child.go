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

// Child is a process that does one part of a test, and tells the test about it, line by line.
type Child struct {
	Cmd *exec.Cmd
	In  io.WriteCloser // its standard input
	out *bufio.Scanner
}

// StartChild starts a child. It is killed when the test is over, if it still runs.
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

// said begins the lines that are for the test, apart from what the testing package prints.
const said = "child: "

// Say tells the test something: it is for the child.
func Say(words ...any) { fmt.Print(said, fmt.Sprintln(words...)) }

// Hear is the next thing that the child says; nothing when it has ended.
func (c *Child) Hear() string {
	for c.out.Scan() {
		if text, ok := strings.CutPrefix(c.out.Text(), said); ok {
			return text
		}
	}
	return ""
}

// Expect fails the test if that is not what the child says next.
func (c *Child) Expect(tb testing.TB, want string) {
	tb.Helper()
	if got := c.Hear(); got != want {
		tb.Fatalf("a child says %q, want %q", got, want)
	}
}
