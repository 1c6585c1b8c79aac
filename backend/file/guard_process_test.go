//go:build linux || darwin

package file

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/fsys"
)

// guardOrder is a child process's task.
type guardOrder struct {
	Path   string
	Tokens []fence.Token // it writes with each in turn
	StopAt string        // it stops itself before this step
	Umask  *int
	UID    int // the user to become; 0: stay
	GIDs   []int
}

// guardAnswer is the outcome of one write. Times are on the clock that all
// processes of a machine share.
type guardAnswer struct {
	Token      fence.Token
	Error      string
	Stale      bool
	Begin, End int64
}

const guardOrderVariable = "CROFT_TEST_GUARD_ORDER"

// TestGuardChildProcess is not a test. Other tests start it as a process of its
// own.
func TestGuardChildProcess(t *testing.T) {
	text := os.Getenv(guardOrderVariable)
	if text == "" {
		return
	}
	var order guardOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		t.Fatal(err)
	}
	guardObey(order)
	os.Exit(0)
}

// guardObey does a child's task and prints an answer for each write.
func guardObey(order guardOrder) {
	die := func(err error) {
		if err != nil {
			fmt.Println("child:", err)
			os.Exit(1)
		}
	}
	if order.Umask != nil {
		syscall.Umask(*order.Umask)
	}
	if order.UID != 0 {
		die(syscall.Setgroups(order.GIDs))
		die(syscall.Setgid(order.GIDs[0]))
		die(syscall.Setuid(order.UID))
	}
	f, err := Open(order.Path, &Options{LockWait: 2 * time.Minute})
	die(err)
	if order.StopAt != "" {
		f.fs = &fsys.Faulty{FS: fsys.OS{}, Before: func(s fsys.Step) error {
			if s.Op != order.StopAt {
				return nil
			}
			awake := make(chan os.Signal, 1)
			signal.Notify(awake, syscall.SIGCONT)
			err := syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-awake // the signal may stop this thread last
			return err
		}}
	}
	out := json.NewEncoder(os.Stdout)
	for _, token := range order.Tokens {
		a := guardAnswer{Token: token, Begin: guardNow()}
		_, err := f.Write(context.Background(), guardStamp(token), strings.NewReader(fmt.Sprint(token)))
		a.End = guardNow()
		if err != nil {
			a.Error, a.Stale = err.Error(), errors.Is(err, fence.ErrStale)
		}
		die(out.Encode(a))
	}
}

func guardNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// guardChild is a started child.
type guardChild struct {
	*exec.Cmd
	out io.Reader
}

func guardStart(t *testing.T, order guardOrder) *guardChild {
	t.Helper()
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestGuardChildProcess$")
	cmd.Env = append(os.Environ(), guardOrderVariable+"="+string(text),
		// Otherwise the race detector keeps every child for a second.
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return &guardChild{cmd, out}
}

// answers reads all of the child's answers and waits for its end.
func (c *guardChild) answers(t *testing.T) []guardAnswer {
	t.Helper()
	var answers []guardAnswer
	lines := bufio.NewScanner(c.out)
	for lines.Scan() {
		var a guardAnswer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Errorf("the child says: %s", lines.Text())
			continue
		}
		answers = append(answers, a)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the child: %v", err)
	}
	return answers
}

// stopped waits until the child has stopped itself.
func (c *guardChild) stopped(t *testing.T) {
	t.Helper()
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || !status.Stopped():
			t.Fatalf("the child did not stop: %v, %v", status, err)
		default:
			return
		}
	}
}

// TestGuardStoppedProcessInsideIsNamedAndOthersGoOnAfterIt: a worker is stopped
// inside the guard and then wakes up. This is the worker to fear.
func TestGuardStoppedProcessInsideIsNamedAndOthersGoOnAfterIt(t *testing.T) {
	for _, end := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
		t.Run(end.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "artifact")
			guardPut(t, guardOpen(t, path), 10, "10")
			child := guardStart(t, guardOrder{Path: path, Tokens: []fence.Token{20}, StopAt: "rename"})
			child.stopped(t)
			guardBusy(t, path, child.Process.Pid)
			// Readers need not wait. The mark is new already, the content is
			// still old.
			f := guardOpen(t, path)
			guardHas(t, f, 20, "10")

			waited := make(chan error)
			go func() {
				_, err := f.Write(context.Background(), guardStamp(30), strings.NewReader("30"))
				waited <- err
			}()
			if err := child.Process.Signal(end); err != nil {
				t.Fatal(err)
			}
			if err := <-waited; err != nil {
				t.Errorf("the next owner, who waited: %v", err)
			}
			guardHas(t, f, 30, "30")
			if end == syscall.SIGKILL {
				_ = child.Wait()
				return
			}
			if a := child.answers(t); len(a) != 1 || a[0].Error != "" {
				t.Errorf("the one that was stopped: %+v, want its write admitted", a)
			}
			guardHas(t, f, 30, "30") // its write came before the other
		})
	}
}

// guardBusy checks that no call waits for ever to enter, that none changes
// anything, and that the error names the process inside.
func guardBusy(t *testing.T, path string, pid int) {
	t.Helper()
	before, err := os.ReadFile(path + guardSuffix)
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	for name, o := range map[string]Options{"bounded": {LockWait: 50 * time.Millisecond}, "at once": {LockWait: -1}, "until cancelled": {LockWait: time.Hour}} {
		f, err := Open(path, &o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if name == "until cancelled" {
			time.AfterFunc(50*time.Millisecond, cancel)
		}
		calls := map[string]func() error{
			"write": func() error { _, err := f.Write(ctx, guardStamp(30), strings.NewReader("30")); return err },
			"raise": func() error { _, err := f.Raise(ctx, guardStamp(30)); return err },
			"rekey": func() error { _, err := f.Rekey(ctx, "other", "ann", "why"); return err },
		}
		if name == "until cancelled" {
			calls = map[string]func() error{"raise": calls["raise"]}
		}
		for verb, call := range calls {
			err := call()
			var busy *BusyError
			if !errors.Is(err, guard.ErrBusy) || !errors.As(err, &busy) {
				t.Fatalf("%s, %s: %v, want ErrBusy", verb, name, err)
			}
			if busy.PID != pid || busy.Host != host || !strings.Contains(err.Error(), fmt.Sprintf("process %d on %s", pid, host)) {
				t.Errorf("%s, %s: %v; want process %d on %s named", verb, name, err, pid, host)
			}
			if want := name == "until cancelled"; errors.Is(err, context.Canceled) != want {
				t.Errorf("%s, %s: %v; want it to match context.Canceled: %v", verb, name, err, want)
			}
		}
		cancel()
	}
	if after, err := os.ReadFile(path + guardSuffix); err != nil || string(after) != string(before) {
		t.Errorf("calls that could not enter changed the sidecar (%v)", err)
	}
	// The process inside has also written its name, for systems whose kernel
	// does not tell.
	if who, at := slotWho(before[slotInside:]); who != pid || at != host {
		t.Errorf("the sidecar names process %d on %q, want %d on %q", who, at, pid, host)
	}
}

func TestGuardManyProcessesKeepLaw3(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "artifact")
	const processes, writes = 8, 15
	var children []*guardChild
	for i := range processes {
		order := guardOrder{Path: path}
		for n := range writes {
			token := fence.Token(1 + n*processes + i) // all rise together
			if i%4 == 3 {
				token = fence.Token(1 + (writes-1-n)*processes + i) // except these, which fall
			}
			order.Tokens = append(order.Tokens, token)
		}
		children = append(children, guardStart(t, order))
	}
	var history []guardtest.Event
	refused := 0
	for i, child := range children {
		answers := child.answers(t)
		if len(answers) != writes {
			t.Errorf("process %d gave %d answers, want %d", i, len(answers), writes)
		}
		for _, a := range answers {
			switch {
			case a.Error == "":
				history = append(history, guardtest.Event{Kind: guardtest.Write, Token: a.Token, Begin: a.Begin, End: a.End, Who: fmt.Sprint("process ", i)})
			case a.Stale:
				refused++
			default:
				t.Errorf("process %d, token %d: %s", i, a.Token, a.Error)
			}
		}
	}
	for _, broken := range guardtest.Law3(history) {
		t.Error(broken)
	}
	if len(history) == 0 || refused == 0 {
		t.Errorf("%d admitted and %d refused: this was no race", len(history), refused)
	}
	const highest = processes * writes
	guardHas(t, guardOpen(t, path), highest, fmt.Sprint(highest))
	guardAlone(t, guardOpen(t, path))
}

func TestGuardCallsOfOneProcessWaitForEachOther(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	v, err := f.visit()
	if err != nil {
		t.Fatal(err)
	}
	defer v.leave()
	in, err := v.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.options.LockWait = 20 * time.Millisecond
	var busy *BusyError
	if _, err := f.Raise(t.Context(), guardStamp(1)); !errors.As(err, &busy) || busy.PID != os.Getpid() {
		t.Errorf("through the same File: %v, want ErrBusy with this process", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.options.LockWait = time.Hour
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := f.Raise(ctx, guardStamp(1)); !errors.Is(err, guard.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while waiting: %v, want ErrBusy and context.Canceled", err)
	}
	in.leave()
	if _, err := f.Raise(t.Context(), guardStamp(1)); err != nil {
		t.Error(err)
	}
}
