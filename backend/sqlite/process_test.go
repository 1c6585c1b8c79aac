//go:build unix

package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// childEnv tells the test program to act as a child of a test, as "what:file".
const childEnv = "CROFT_TEST_SQLITE_CHILD"

// TestStoreChild is the child's part of tests with several processes. By itself
// it does nothing.
func TestStoreChild(t *testing.T) {
	what, file, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		return
	}
	in := bufio.NewScanner(os.Stdin)
	switch what {
	case "first": // opens on "go", one of many first users
		testenv.Say("ready")
		in.Scan()
		st, err := Open(t.Context(), file, &Options{LockWait: testenv.Patience})
		if err != nil {
			testenv.Say("error", err)
			return
		}
		defer st.Close()
		a := one(st, acquire(fmt.Sprintf("first/%d", os.Getpid()), "ann"))
		testenv.Say("done", a.Err)
	case "stop": // stops itself in the middle of its transaction
		var stopping atomic.Bool
		st := open(t, file, &Options{now: func() time.Time {
			if stopping.Swap(false) {
				testenv.Say("inside")
				stopSelf()
			}
			return time.Now()
		}})
		defer st.Close()
		testenv.Say("ready")
		in.Scan()
		stopping.Store(true)
		testenv.Say("answer", one(st, acquire("stopped", "child")).Err)
	case "stop guard": // stops itself in the middle of a guarded write
		db := applicationAt(t, file, "")
		g := guardIn(t, db, FenceRow{Name: "report"}, nil)
		testenv.Say("ready")
		in.Scan()
		testenv.Say("answer", inside(t.Context(), db, func(tx *sql.Tx) error {
			if err := g.Admit(t.Context(), tx, stampOf(1001)); err != nil {
				return err
			}
			testenv.Say("inside")
			stopSelf()
			_, err := tx.Exec("INSERT INTO report (body) VALUES ('stopped')")
			return err
		}))
	case "take": // takes a key whenever it is told to
		st := open(t, file, nil)
		defer st.Close()
		testenv.Say("ready")
		for in.Scan() {
			st.options.LockWait = testenv.Patience
			if in.Text() == "try" { // it will be refused
				st.options.LockWait = 200 * time.Millisecond
			}
			testenv.Say("answer", one(st, acquire("k", "child")).Err)
		}
	case "revoke": // revokes the keys that it reads
		st := open(t, file, nil)
		defer st.Close()
		testenv.Say("ready")
		for in.Scan() {
			testenv.Say("answer", one(st, revoke(in.Text())).Err)
		}
	case "look": // says whether the file is whole, and who holds a key
		var verdict string
		query(t, file, "PRAGMA integrity_check", &verdict)
		st := open(t, file, nil)
		defer st.Close()
		rec, err := st.Get(t.Context(), "k")
		testenv.Say(verdict, rec.State, rec.Owner, err)
	case "fault write", "fault flush": // asks while its disk fails
		failing(t, strings.TrimPrefix(what, "fault "), file)
	case "busy": // terms and guarded writes without end, until it is killed
		busy(t, file)
	}
}

// startChild starts a process that runs TestStoreChild.
func startChild(tb testing.TB, what, file string) *testenv.Child {
	tb.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoreChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+what+":"+file, "GORACE=atexit_sleep_ms=10")
	return testenv.StartChild(tb, cmd)
}

// TestOfManyFirstUsersOneMakesTheFile has many processes open a missing file at
// the same moment. All of them get a lease.
func TestOfManyFirstUsersOneMakesTheFile(t *testing.T) {
	t.Parallel()
	users := many(50, 20, 10)
	file := t.TempDir() + "/croft.db"
	children := make([]*testenv.Child, users)
	for i := range children {
		children[i] = startChild(t, "first", file)
	}
	for _, c := range children {
		c.Expect(t, "ready")
	}
	for _, c := range children {
		fmt.Fprintln(c.In, "go")
	}
	for _, c := range children {
		c.Expect(t, "done <nil>")
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
	t.Logf("1 rounds of %d processes", users)
}

// TestAStoppedWriterIsNamed stops a process in the middle of its transaction.
// Others soon get an error that names it, and lose nothing. The transaction
// takes effect once or not at all.
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
			c.Expect(t, "ready")
			fmt.Fprintln(c.In, "go")
			c.Expect(t, "inside")
			stopped(t, c)

			renew := then(tenure.Renew, mine)
			a := one(st, renew)
			told(t, a.Err, c, "renewing")
			if !errors.Is(a.Err, ErrBusy) {
				t.Errorf("it is not ErrBusy: %v", a.Err)
			}
			a = st.Apply(newLapsing(), []tenure.Request{renew})[0]
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
			if err := c.Cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if end == "resumed" {
				c.Expect(t, "answer <nil>")
			} else {
				_ = c.Cmd.Wait()
			}
			st.options.LockWait = testenv.Patience // its end takes a moment
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

// stopped waits until the child is stopped.
func stopped(tb testing.TB, c *testenv.Child) {
	tb.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Cmd.Process.Pid))
		if err != nil || strings.Contains(string(stat), ") T ") { // without /proc, assume that it is
			return
		}
	}
	tb.Fatal("the child does not stop")
}

// lapsing is a context whose deadline passes when a call first waits for it.
// That is after the call has begun, however slow the machine is.
type lapsing struct {
	context.Context
	end func()
}

func newLapsing() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	return lapsing{ctx, func() { cancel(context.DeadlineExceeded) }}
}

func (l lapsing) Done() <-chan struct{} {
	l.end()
	return l.Context.Done()
}

func (l lapsing) Err() error {
	if l.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// told checks that an error names the stopped process and says how to resume
// it.
func told(tb testing.TB, err error, c *testenv.Child, what string) {
	tb.Helper()
	var words []string
	if _, err := os.Stat("/proc/locks"); err == nil {
		words = append(words, fmt.Sprintf("process %d", c.Cmd.Process.Pid), "is stopped", fmt.Sprintf("kill -CONT %d", c.Cmd.Process.Pid))
	}
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			tb.Errorf("%s behind a stopped writer: %v; it does not say %q", what, err, word)
		}
	}
}

// TestActsOfAnotherProcessAreTold checks that a listener soon hears of them.
func TestActsOfAnotherProcessAreTold(t *testing.T) {
	t.Parallel()
	file := memoryDir(t) + "/croft.db"
	st := open(t, file, nil)
	defer st.Close()
	child := startChild(t, "revoke", file)
	child.Expect(t, "ready")
	c := listen(t, st)
	for i := range 5 {
		key := fmt.Sprintf("job/%d", i)
		start := time.Now()
		fmt.Fprintln(child.In, key)
		child.Expect(t, "answer <nil>")
		heard(t, c, "", key)
		t.Logf("told after %s", time.Since(start))
	}
}
