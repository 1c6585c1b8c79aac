//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Child is a running command with all its descendants. Its methods may be
// called from any goroutine.
type Child struct {
	body  body
	tty   *terminal   // nil without a terminal, or if aside
	may   func() bool // Options.MayContinue
	aside bool        // Options.Aside

	signals    chan os.Signal
	passesStop bool // SIGTSTP is among signals: it was not ignored at start

	ended sync.Once
	over  chan struct{} // closed when signals are no longer passed on

	mu     sync.Mutex
	frozen bool // Freeze was called and not taken back
	held   bool // the command should go on, but is frozen or MayContinue said no

	done   chan struct{} // closed when the command has exited; then status and err are set
	status Status
	err    error
}

// body is a command and its descendants, as far as the system can control them.
// A ward has a warden; a group is only a process group.
type body interface {
	id() int
	signal(syscall.Signal) error
	allowFor(time.Duration) error
	freeze(context.Context) error
	thaw()
	terminate() error
	kill(context.Context) error
	alive() []int
}

// event says that the command itself stopped or exited.
type event struct {
	stopped syscall.Signal
	exited  bool
	status  Status
	err     error
}

// passedOn are the signals to the caller that are meant for the command.
var passedOn = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
}

// Start runs args[0] with the arguments args[1:]. The context bounds only the
// start: if it ends before the command runs, the command will not run later,
// either. A command that cannot be started gives a *StartError.
//
// From Start until Kill has returned, the usual signals to a job go on to the
// command's process group and do not end the caller. They are SIGINT, SIGTERM,
// SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGTSTP and SIGCONT.
// Signals that were ignored when the caller started stay ignored, as far as the
// Go runtime lets them: see the limits in the package comment. With
// Options.Aside no signal is passed on.
//
// On Linux Start makes the caller's process a child subreaper, for good. If the
// warden is killed, every child of the process that is not a warden counts as
// an orphan of the command and is killed. A caller with other children must
// know this.
//
// The caller of Start must call Kill in the end, even if the command has
// exited.
func Start(ctx context.Context, args []string, opts *Options) (*Child, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(args) == 0 || args[0] == "" {
		return nil, &StartError{Code: CodeNotFound, Why: "the command is empty; name a program", Err: syscall.ENOENT}
	}
	if o.Dir != "" {
		if info, err := os.Stat(o.Dir); err != nil {
			return nil, &StartError{
				Name: args[0], Code: CodeNotExecutable,
				Why: fmt.Sprintf("its working directory cannot be used: %v", err), Err: err,
			}
		} else if !info.IsDir() {
			return nil, &StartError{
				Name: args[0], Code: CodeNotExecutable,
				Why: o.Dir + " is to be its working directory, but is no directory", Err: syscall.ENOTDIR,
			}
		}
	}
	c := &Child{
		may:     o.MayContinue,
		aside:   o.Aside,
		signals: make(chan os.Signal, 64),
		over:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	if !o.Aside {
		c.tty = openTerminal()
		skip := ignored() // Notify would undo nohup, here and in the command
		for _, sig := range passedOn {
			if !skip[sig] {
				signal.Notify(c.signals, sig)
			}
		}
		c.passesStop = !skip[syscall.SIGTSTP]
	}
	foreground := c.tty.lendAtOnce(o.Stdin, o.Stdout)
	b, events, err := launch(ctx, args, &o, foreground)
	if foreground {
		c.tty.noteLent() // even if the start failed: the command may have got the terminal
	}
	if err != nil {
		c.endRelay()
		c.tty.takeBack(true)
		c.tty.close()
		return nil, err
	}
	c.body = b
	go c.follow(events)
	go c.relay()
	return c, nil
}

func statusOf(ws syscall.WaitStatus) Status {
	if ws.Signaled() {
		return Status{Signal: ws.Signal(), Core: ws.CoreDump()}
	}
	return Status{Code: ws.ExitStatus()}
}

// streams returns the command's three files. done closes the null devices that
// it opened.
func (o *Options) streams() (files []*os.File, done func(), err error) {
	files = []*os.File{o.Stdin, o.Stdout, o.Stderr}
	done = func() {}
	for i, f := range files {
		if f != nil {
			continue
		}
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			done()
			return nil, nil, fmt.Errorf("supervise: no null device for the command: %w", err)
		}
		files[i] = null
		before := done
		done = func() {
			before()
			_ = null.Close()
		}
	}
	return files, done, nil
}

// follow handles the events of the command.
func (c *Child) follow(events <-chan event) {
	for e := range events {
		if !e.exited {
			c.stopped(e.stopped)
			continue
		}
		c.mu.Lock()
		c.tty.takeBack(e.status.Signal != 0 || e.err != nil)
		c.mu.Unlock()
		c.status, c.err = e.status, e.err
		close(c.done)
	}
}

// relay passes the caller's signals on to the command.
func (c *Child) relay() {
	for {
		select {
		case <-c.over:
			return
		case sig := <-c.signals:
			if sig == syscall.SIGCONT {
				c.continued()
			} else {
				_ = c.body.signal(sig.(syscall.Signal))
			}
		}
	}
}

func (c *Child) endRelay() {
	c.ended.Do(func() {
		signal.Stop(c.signals)
		close(c.over)
	})
}

// Pid is the process id of the command itself. Its process group has the same
// number.
func (c *Child) Pid() int { return c.body.id() }

// Done is closed when the command itself has exited. Descendants may still run:
// see Alive and Kill.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait waits until the command itself has exited, and returns how it ended.
// Descendants may still run: see Alive and Kill.
func (c *Child) Wait() (Status, error) {
	<-c.done
	return c.status, c.err
}

// Signal sends sig to the command's process group, and does not wait for the
// delivery. It returns ErrOver once the command itself has exited.
func (c *Child) Signal(sig syscall.Signal) error {
	select {
	case <-c.done:
		return ErrOver
	default:
		return c.body.signal(sig)
	}
}

// AllowFor lets the command run for d from now and no longer. Then the warden
// kills all of it, even if the caller is stopped or too busy to do so. Each
// call replaces the time set before. Without a call there is no limit.
// Without a warden (other systems than Linux, or Options.GroupWillDo) AllowFor
// does nothing.
//
// Time in suspend counts. But command and warden may have stood still together
// when the time came, because the machine slept or both were stopped. Then the
// warden freezes the command for 5 s before it kills it. A further call in
// these 5 s, with time left, lets the command go on.
func (c *Child) AllowFor(d time.Duration) error { return c.body.allowFor(d) }

// Freeze stops the command and all its descendants. It returns when all are
// seen to be stopped. A *SurvivorsError names those that are not; the others
// are stopped nevertheless. Thaw undoes it.
func (c *Child) Freeze(ctx context.Context) error {
	c.mu.Lock()
	c.frozen = true
	c.mu.Unlock()
	return c.body.freeze(ctx)
}

// Thaw continues the processes that Freeze stopped, and a command that stayed
// stopped because MayContinue said no. Processes that were stopped before
// Freeze stay stopped.
func (c *Child) Thaw() {
	c.mu.Lock()
	held := c.held
	c.frozen, c.held = false, false
	c.mu.Unlock()
	c.body.thaw()
	if held {
		c.resume()
	}
}

// Terminate asks the command and all its descendants to end (SIGTERM). It
// continues stopped processes, so that they can. It does not wait.
func (c *Child) Terminate() error {
	c.mu.Lock()
	c.frozen, c.held = false, false
	c.mu.Unlock()
	return c.body.terminate()
}

// Kill kills the command and all its descendants. When it returns nil, nothing
// of them is alive and the command's status is known. The terminal is back with
// the caller, and signals have their usual effect on the caller again.
//
// Call Kill also after the command has exited by itself: it kills what the
// command left behind. If the context ends first, or some processes may not be
// killed, it returns a *SurvivorsError. It may be called again.
func (c *Child) Kill(ctx context.Context) error {
	if err := c.body.kill(ctx); err != nil {
		return err
	}
	<-c.done
	c.endRelay()
	c.mu.Lock()
	c.tty.close()
	c.mu.Unlock()
	return nil
}

// Alive lists the living processes of the command: itself and its descendants,
// parents first. Zombies count as dead.
func (c *Child) Alive() []int { return c.body.alive() }
