package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait. It is long because machines are slow. No test
// asserts it.
const patience = time.Minute

// roleVar makes the test binary one of the programs the tests need.
const roleVar = "SUPERVISE_TEST_ROLE"

func TestMain(m *testing.M) {
	MaybeWarden()
	role := os.Getenv(roleVar)
	_ = os.Unsetenv(roleVar)
	switch role {
	case "":
		// A binary with the race detector sleeps a second before it exits. So
		// would every warden.
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
		// Signals that were ignored when the tests were started, as by nohup,
		// would be ignored in their processes, too. Catching them here prevents
		// that.
		for sig, yes := range ignored() {
			if yes {
				signal.Notify(make(chan os.Signal, 1), sig)
			}
		}
		mark := fmt.Sprintf("SUPERVISE_TEST_RUN=%d", os.Getpid())
		name, value, _ := strings.Cut(mark, "=")
		_ = os.Setenv(name, value)
		code := m.Run()
		if left := survivors(mark); len(left) > 0 {
			fmt.Println("FAIL: outlived the tests:", left)
			code = 1
		}
		os.Exit(code)
	case "croft":
		os.Exit(croft())
	case "daemon":
		os.Exit(daemon())
	case "root":
		os.Exit(becomeRoot())
	case "mover":
		os.Exit(mover())
	case "stopper":
		os.Exit(stopper())
	case "leaderless":
		leaderless()
	}
	fmt.Fprintln(os.Stderr, "no such role:", role)
	os.Exit(2)
}

// survivors finds processes that these tests have left. It does not use
// parents, as the package does, but a mark in the environment.
func survivors(mark string) (left []string) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left = nil
		f, err := readFamily()
		if err != nil {
			return []string{err.Error()}
		}
		for _, children := range f {
			for _, p := range children {
				env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
				if p.pid != os.Getpid() && p.alive() && strings.Contains(string(env), mark+"\x00") {
					line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
					left = append(left, fmt.Sprintf("%d %q", p.pid, line))
				}
			}
		}
		if len(left) == 0 {
			return nil
		}
	}
	return left
}

// croft is a program that uses this package. It runs its arguments and exits
// with their code.
func croft() int {
	ctx := context.Background()
	o := &Options{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Aside: os.Getenv("ASIDE") != ""}
	if os.Getenv("GROUP") != "" { // as a program that does not call MaybeWarden
		wardenReady.Store(false)
		o.GroupWillDo = true
	}
	c, err := Start(ctx, os.Args[1:], o)
	var failed *StartError
	if errors.As(err, &failed) {
		fmt.Fprintln(os.Stderr, err)
		return failed.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	if note := os.Getenv("KILL_AT"); note != "" {
		awaitFile(note)
		if err := c.Kill(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 96
		}
	}
	if note := os.Getenv("STOP_AT"); note != "" {
		awaitFile(note)
		if err := c.AllowFor(100 * time.Millisecond); err != nil {
			return 98
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	status, err := c.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 97
	}
	if err := c.Kill(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 96
	}
	return status.ExitCode()
}

func awaitFile(name string) {
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// daemon starts its arguments in a session of their own and exits: the classic
// double fork.
func daemon() int {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// as returns a command line that runs the test binary in a role.
func as(role string) string { return roleVar + "=" + role + " " + self() + " " }

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// noteDir is a directory in which the processes of a test leave notes.
type noteDir struct {
	t   *testing.T
	dir string
}

func newNoteDir(t *testing.T) *noteDir {
	t.Helper()
	return &noteDir{t, t.TempDir()}
}

// sign is a shell script that writes the shell's pid into the note name.
func (y *noteDir) sign(name string) string {
	return fmt.Sprintf("echo $$ >%[1]s.new; mv %[1]s.new %[1]s; ", y.path(name))
}

func (y *noteDir) path(name string) string { return filepath.Join(y.dir, name) }

func (y *noteDir) has(name string) bool {
	_, err := os.Stat(y.path(name))
	return err == nil
}

func (y *noteDir) size(name string) int64 {
	info, err := os.Stat(y.path(name))
	if err != nil {
		return 0
	}
	return info.Size()
}

// signed waits for a note by sign, and returns the process that wrote it.
func (y *noteDir) signed(name string) proc {
	y.t.Helper()
	y.await("the note "+name, func() bool { return y.has(name) })
	text, err := os.ReadFile(y.path(name))
	if err != nil {
		y.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		y.t.Fatal(err)
	}
	p, ok := readProc(pid)
	if !ok {
		y.t.Fatalf("%s (pid %d) is gone before it was looked at", name, pid)
	}
	return p
}

func (y *noteDir) await(what string, is func() bool) {
	y.t.Helper()
	await(y.t, what, is)
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}

func living(p proc) bool {
	now, ok := readProc(p.pid)
	return ok && now.start == p.start && now.alive()
}

func awaitDeath(t *testing.T, name string, p proc) {
	t.Helper()
	await(t, fmt.Sprintf("the death of %s (pid %d)", name, p.pid), func() bool { return !living(p) })
}

// bounded returns a context that lasts longer than any wait should.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// start runs a shell script under supervision of this process.
func start(t *testing.T, script string) *Child {
	t.Helper()
	return startArgs(t, &Options{Stderr: os.Stderr}, "/bin/sh", "-c", script)
}

func startArgs(t *testing.T, o *Options, args ...string) *Child {
	t.Helper()
	c, err := Start(bounded(t), args, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kill(bounded(t)); err != nil {
			t.Error(err)
		}
	})
	return c
}

func kill(t *testing.T, c *Child) {
	t.Helper()
	if err := c.Kill(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if left := c.Alive(); len(left) != 0 {
		t.Fatalf("Kill returned, but %v are alive", left)
	}
}

// caller is a separate croft process. Tests may stop or kill it.
type caller struct {
	*exec.Cmd
	t        *testing.T
	log      *os.File
	finished chan error
}

// newCaller prepares a croft that runs a shell script.
func newCaller(t *testing.T, script string, env ...string) *caller {
	t.Helper()
	c := &caller{Cmd: exec.Command(self(), "/bin/sh", "-c", script), t: t, finished: make(chan error, 1)}
	c.Env = append(append(os.Environ(), roleVar+"=croft"), env...)
	// A file, not a pipe: a process that survives by mistake must not hang the
	// test.
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	c.log, c.Stdout, c.Stderr = log, log, log
	// A group of its own, as a shell would give it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

func (c *caller) start() *caller {
	c.t.Helper()
	if err := c.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() { c.finished <- c.Wait() }()
	c.t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// exit waits for croft's end and returns its exit code, or -1 if it was killed.
func (c *caller) exit() int {
	c.t.Helper()
	select {
	case <-c.finished:
		return c.ProcessState.ExitCode()
	case <-time.After(patience):
		c.t.Fatalf("croft did not end; it said: %s", c.said())
		return 0
	}
}

// said returns the output of croft and its command so far.
func (c *caller) said() string {
	text, err := os.ReadFile(c.log.Name())
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

func (c *caller) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// wardenOf returns the warden of a command.
func wardenOf(t *testing.T, command proc) proc {
	t.Helper()
	w, ok := readProc(command.parent)
	if !ok {
		t.Fatalf("the command's parent (pid %d) is gone", command.parent)
	}
	return w
}

func signalProc(t *testing.T, p proc, sig syscall.Signal) {
	t.Helper()
	if err := send(p, sig); err != nil {
		t.Fatal(err)
	}
}

// forever is a shell script that does nothing until it is killed.
const forever = "while :; do sleep 1000; done"
