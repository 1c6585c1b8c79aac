package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wardenVar marks a process as a warden. Its value is the descriptor of the
// socket to the caller.
const wardenVar = "CROFT_WARDEN_FD"

// wardenReady is set by MaybeWarden. Without that call, Start would begin an
// endless chain of copies of this program.
var wardenReady atomic.Bool

// MaybeWarden turns this process into a warden, and does not return, if Start
// executed it as one. Otherwise it does nothing. A program that uses Start must
// call it first thing in main, before it looks at its arguments.
func MaybeWarden() {
	wardenReady.Store(true)
	value, ok := os.LookupEnv(wardenVar)
	if !ok {
		return
	}
	fd, err := strconv.Atoi(value)
	if err == nil {
		_, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "croft: %s=%q is set, but it is only for croft to set; unset it and try again\n",
			wardenVar, value)
		os.Exit(2)
	}
	// The command's parent-death signal is tied to the thread that forks it.
	// This goroutine never ends, so its thread does not, either.
	runtime.LockOSThread()
	unix.CloseOnExec(fd)
	_ = unix.SetNonblock(fd, true)
	_ = os.WriteFile("/proc/self/comm", []byte("warden"), 0) // the name in ps; see the package comment
	newWarden(os.NewFile(uintptr(fd), "caller")).serve()
}

// warden is the parent of the command. Everything but the fork happens on one
// goroutine. So it never signals a group whose leader has just been reaped.
type warden struct {
	caller *os.File
	send   *json.Encoder
	orders chan order // closed when the caller is gone
	chld   chan os.Signal
	tree   tree
	main   int // the command's pid; 0 before it started and after it was reaped

	overdue bool   // the time was up, and everything was killed
	scratch string // the file or folder to remove at the end, or empty
}

func newWarden(caller *os.File) *warden {
	w := &warden{
		caller: caller,
		send:   json.NewEncoder(caller),
		orders: make(chan order),
		chld:   make(chan os.Signal, 1),
	}
	w.tree.root = func() (int, map[int]bool, bool) { return os.Getpid(), nil, true }
	signal.Notify(w.chld, syscall.SIGCHLD)

	// Only SIGKILL ends a warden. Signals are caught and not ignored, because
	// the command would inherit ignoring.
	deaf, skip := make(chan os.Signal, 1), ignored()
	for sig := syscall.Signal(1); sig < 32; sig++ {
		switch sig {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG,
			syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV:
		default:
			if !skip[sig] {
				signal.Notify(deaf, sig)
			}
		}
	}
	return w
}

// serve reads the first order, starts the command, and never returns.
func (w *warden) serve() {
	receive := json.NewDecoder(w.caller)
	var first order
	if err := receive.Decode(&first); err != nil || first.Start == nil {
		os.Exit(0) // the caller is gone, and nothing was started
	}
	w.scratch = string(first.Start.Scratch)
	go func() {
		defer close(w.orders)
		for {
			var o order
			if receive.Decode(&o) != nil {
				return
			}
			w.orders <- o
		}
	}()
	started := make(chan report, 1)
	go w.watch(started, first.Until)
	started <- w.start(first.Start)
	select {} // keeps the thread alive
}

// start forks the command. It can hang for as long as a dead file server does
// not answer, so watch does not call it.
func (w *warden) start(s *spec) report {
	args := toStrings(s.Args)
	attr := &syscall.ProcAttr{
		Env:   toStrings(s.Env),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Foreground: s.Foreground, Ctty: 0, Pdeathsig: syscall.SIGKILL},
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return failed(&StartError{
			Code: CodeNotExecutable,
			Why:  "this system does not let croft keep track of a command's descendants (PR_SET_CHILD_SUBREAPER)",
			Err:  err,
		})
	}
	pid, err := spawn(args, attr)
	if err != nil && s.Foreground && errors.Is(err, syscall.ENOTTY) {
		attr.Sys.Foreground = false // the terminal went away meanwhile
		pid, err = spawn(args, attr)
	}
	if err != nil {
		return failed(err)
	}
	// The streams are the command's now. Here they would keep a pipe open that
	// everybody else has closed.
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(int(null.Fd()), fd, 0)
		}
		_ = null.Close()
	}
	return report{Started: pid}
}

func failed(e *StartError) report {
	f := &failure{Code: e.Code, Why: e.Why}
	errors.As(e.Err, &f.Errno)
	return report{Failed: f}
}

// If the warden finds that the time was up more than lateBy ago, it has stood
// still itself. The machine slept, or the whole job was stopped. The caller
// stood still with it. So the caller gets decideFor to say whether the command
// may go on. Until then the command is frozen.
const (
	lateBy    = 500 * time.Millisecond
	decideFor = 5 * time.Second
)

// watch is the warden's main loop. It passes on signals, reaps and reports. It
// ends the command when the caller is gone or the time is up.
func (w *warden) watch(started <-chan report, until time.Duration) {
	var decide time.Duration
	timer := time.NewTimer(0)
	for {
		select {
		case r := <-started:
			w.main = r.Started
			_ = w.send.Encode(r) // if the caller is gone, orders is closed
			w.reap()
			started = nil
		case <-w.chld:
			if started == nil { // before, reap does not know the command's pid
				w.reap()
			}
		case o, ok := <-w.orders:
			if !ok {
				w.leave()
			}
			if o.Until != 0 {
				until = o.Until
				if decide != 0 && until > sinceBoot() {
					decide = 0
					w.tree.thaw()
				}
				timer.Reset(0)
			}
			if o.Signal != 0 && w.main != 0 {
				w.signal(o.Signal)
			}
		case <-timer.C:
			switch now := sinceBoot(); {
			case until == 0:
			case started != nil: // the command's pid is not known yet: kill it once it is
				timer.Reset(50 * time.Millisecond)
			case now < until:
				timer.Reset(min(until-now, time.Second)) // Go's timers stop while the machine sleeps
			case now < decide:
				timer.Reset(min(decide-now, time.Second))
			case decide == 0 && now-until > lateBy:
				decide = now + decideFor
				short, cancel := context.WithTimeout(context.Background(), freezeBeforeKill)
				_ = w.tree.freeze(short) // processes that cannot be stopped are killed soon, if possible
				cancel()
				w.reap()
				timer.Reset(0)
			default:
				decide = now // wait for a decision only once
				w.overdue = true
				_ = w.tree.kill(context.Background())
				w.reap()
				timer.Reset(time.Second) // for processes that could not be killed, or are new
			}
		}
	}
}

// signal sends sig to the command's group, or to the command alone if it has
// moved to another group.
func (w *warden) signal(sig syscall.Signal) {
	if errors.Is(unix.Kill(-w.main, sig), unix.ESRCH) {
		_ = unix.Kill(w.main, sig)
	}
}

// reap collects all children that have died or stopped, and reports the events
// of the command itself. It returns true if this process has no children at
// all, dead or alive. Every orphan becomes a child of this process, so then
// there are no descendants.
func (w *warden) reap() (none bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return true
		case pid == 0:
			return false
		case pid != w.main:
		case status.Stopped():
			_ = w.send.Encode(report{Stopped: status.StopSignal()})
		default:
			w.main = 0
			killed := status.Signaled() && status.Signal() == syscall.SIGKILL
			_ = w.send.Encode(report{Exited: true, Status: status, Overdue: w.overdue && killed})
		}
	}
}

// leave kills everything, and exits when the kernel says that nothing is left.
// It also removes the scratch file, because the caller may be dead.
func (w *warden) leave() {
	var pause backoff
	for !w.reap() {
		var left *SurvivorsError
		if err := w.tree.kill(context.Background()); errors.As(err, &left) {
			// They belong to another user. Stay, in case they can be killed
			// later.
			_ = w.send.Encode(report{Refused: left.PIDs})
			time.Sleep(time.Second)
		} else {
			_ = pause.wait(context.Background())
		}
	}
	if w.scratch != "" {
		_ = os.RemoveAll(w.scratch)
	}
	os.Exit(0)
}
