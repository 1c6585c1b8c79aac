//go:build unix

package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// childEnv makes the test program a child of a test: "what:file".
const childEnv = "CROFT_TEST_SQLITE_CHILD"

// TestStoreChild is the child's part of the tests of processes; by itself it does nothing.
func TestStoreChild(t *testing.T) {
	what, file, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		return
	}
	in := bufio.NewScanner(os.Stdin)
	switch what {
	case "first": // opens on "go", of many the first
		say("ready")
		in.Scan()
		st, err := Open(t.Context(), file, nil)
		if err != nil {
			say("error", err)
			return
		}
		defer st.Close()
		a := one(st, acquire(fmt.Sprintf("first/%d", os.Getpid()), "ann"))
		say("done", a.Err)
	case "stop": // stops itself in the middle of its transaction
		var stopping atomic.Bool
		st := open(t, file, &Options{Now: func() time.Time {
			if stopping.Swap(false) {
				say("inside")
				stopSelf()
			}
			return time.Now()
		}})
		defer st.Close()
		say("ready")
		in.Scan()
		stopping.Store(true)
		say("answer", one(st, acquire("stopped", "child")).Err)
	case "stop guard": // stops itself in the middle of a guarded write
		db := applicationAt(t, file, "")
		g := guardIn(t, db, FenceRow{Name: "report"}, nil)
		say("ready")
		in.Scan()
		say("answer", inside(t.Context(), db, func(tx *sql.Tx) error {
			if err := g.Admit(t.Context(), tx, stampOf(1001)); err != nil {
				return err
			}
			say("inside")
			stopSelf()
			_, err := tx.Exec("INSERT INTO report (body) VALUES ('stopped')")
			return err
		}))
	case "take": // takes a key whenever it is told to
		st := open(t, file, &Options{LockWait: 200 * time.Millisecond})
		defer st.Close()
		say("ready")
		for in.Scan() {
			say("answer", one(st, acquire("k", "child")).Err)
		}
	case "fault write", "fault flush": // asks while its disk fails
		failing(t, strings.TrimPrefix(what, "fault "), file)
	case "busy": // terms and guarded writes without end, until it is killed
		busy(t, file)
	}
}

// say prints a line for the parent, apart from what the testing package prints.
func say(words ...any) { fmt.Println(append([]any{"child:"}, words...)...) }

// child is a process that runs TestStoreChild.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startChild(tb testing.TB, what, file string) *child {
	tb.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoreChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+what+":"+file, "GORACE=atexit_sleep_ms=10")
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
	c := &child{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	tb.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return c
}

// hear returns the next thing the child says; nothing when it has ended.
func (c *child) hear() string {
	for c.out.Scan() {
		if text, ok := strings.CutPrefix(c.out.Text(), "child: "); ok {
			return text
		}
	}
	return ""
}

func (c *child) expect(tb testing.TB, want string) {
	tb.Helper()
	if got := c.hear(); got != want {
		tb.Fatalf("a child says %q, want %q", got, want)
	}
}

// TestOfManyFirstUsersOneMakesTheFile: fifty processes open a file that is not there, at one moment. All of them get a lease.
func TestOfManyFirstUsersOneMakesTheFile(t *testing.T) {
	users := 50
	if testing.Short() {
		users = 10
	}
	file := t.TempDir() + "/croft.db"
	children := make([]*child, users)
	for i := range children {
		children[i] = startChild(t, "first", file)
	}
	for _, c := range children {
		c.expect(t, "ready")
	}
	for _, c := range children {
		fmt.Fprintln(c.in, "go")
	}
	for _, c := range children {
		c.expect(t, "done <nil>")
	}
	st := open(t, file, nil)
	defer st.Close()
	held := 0
	for _, err := range st.List(t.Context(), "first/") {
		if err != nil {
			t.Fatal(err)
		}
		held++
	}
	if held != users {
		t.Errorf("%d of %d are remembered", held, users)
	}
	inOrder(t, file)
	var vacuum, application, version, migrations int
	query(t, file, "SELECT (SELECT auto_vacuum FROM pragma_auto_vacuum), (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM croft_migration)",
		&vacuum, &application, &version, &migrations)
	if vacuum != 2 || application != applicationID || version != migrations || migrations == 0 {
		t.Errorf("auto_vacuum %d, application_id %#x, user_version %d, %d migrations", vacuum, application, version, migrations)
	}
}

// TestAStoppedWriterIsNamed: a process is stopped in the middle of its transaction. Others are told who it is, soon, and lose nothing; what it was about to do happens once, or not at all.
func TestAStoppedWriterIsNamed(t *testing.T) {
	for _, end := range []string{"resumed", "killed"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			file := memoryDir(t) + "/croft.db"
			st := open(t, file, &Options{LockWait: 300 * time.Millisecond})
			defer st.Close()
			mine := acquire("mine", "ann")
			if a := one(st, mine); a.Err != nil {
				t.Fatal(a.Err)
			}
			c := startChild(t, "stop", file)
			c.expect(t, "ready")
			fmt.Fprintln(c.in, "go")
			c.expect(t, "inside")
			stopped(t, c)

			renew := then(tenure.Renew, mine)
			a := one(st, renew)
			told(t, a.Err, c, "renewing")
			if !errors.Is(a.Err, ErrBusy) {
				t.Errorf("it is not ErrBusy: %v", a.Err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			a = st.Apply(ctx, []tenure.Request{renew})[0]
			told(t, a.Err, c, "renewing for a moment")
			if !errors.Is(a.Err, context.DeadlineExceeded) {
				t.Errorf("it hides that the context has ended: %v", a.Err)
			}
			if rec, err := st.Get(t.Context(), "mine"); err != nil || rec.Grant != mine.Secret.Grant() {
				t.Errorf("reading meanwhile: %+v, %v", rec, err)
			}
			if findings, err := st.Examine(t.Context()); err != nil || level(findings, "write lock") == "ok" {
				t.Errorf("the doctor finds %+v, %v", findings, err)
			}

			signal := syscall.SIGCONT
			if end == "killed" {
				signal = syscall.SIGKILL
			}
			if err := c.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if end == "resumed" {
				c.expect(t, "answer <nil>")
			} else {
				_ = c.cmd.Wait()
			}
			if a := one(st, renew); a.Err != nil {
				t.Errorf("renewing after it: %v", a.Err)
			}
			a = one(st, acquire("stopped", "ann"))
			if want := map[string]error{"resumed": tenure.ErrHeld, "killed": nil}[end]; !errors.Is(a.Err, want) {
				t.Errorf("the key it was about to take: %v, want %v", a.Err, want)
			}
			inOrder(t, file)
		})
	}
}

// stopped waits until the child is.
func stopped(tb testing.TB, c *child) {
	tb.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil || strings.Contains(string(stat), ") T ") { // where there is no /proc, it is by now
			return
		}
	}
	tb.Fatal("the child does not stop")
}

// told makes sure that an error says what is wrong and what to do.
func told(tb testing.TB, err error, c *child, what string) {
	tb.Helper()
	var words []string
	if _, err := os.Stat("/proc/locks"); err == nil {
		words = append(words, fmt.Sprintf("process %d", c.cmd.Process.Pid), "is stopped", fmt.Sprintf("kill -CONT %d", c.cmd.Process.Pid))
	}
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			tb.Errorf("%s behind a stopped writer: %v; it does not say %q", what, err, word)
		}
	}
}
