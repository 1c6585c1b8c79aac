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

// Child is a running command with all its descendants. Its methods may be called from any goroutine.
type Child struct {
	body  body
	tty   *terminal
	may   func() bool
	aside bool

	signals chan os.Signal
	ended   sync.Once
	over    chan struct{} // closed when signals are no longer passed on

	mu     sync.Mutex
	frozen bool // Freeze was called and not taken back
	held   bool // the command was to be continued, but was frozen or MayContinue said no

	done   chan struct{} // closed when the command has exited; then
	status Status        // these are set
	err    error
}

// body is what a system can do to a command and its descendants.
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

// event is something that happened to the command itself: it was stopped, or it exited.
type event struct {
	stopped syscall.Signal
	exited  bool
	status  Status
	err     error
}

// passedOn are the signals that, sent to the caller, are meant for the command.
var passedOn = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
}

// Start runs args[0] with the arguments args[1:]. The context bounds the start only: if it ends before the command
// runs, the command will not run later, either. A command that cannot be started gives a *StartError.
//
// From Start until Kill has returned, the signals a job gets from its user (SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH,
// SIGTSTP, SIGCONT) are passed on to the command's process group and do not end the caller, unless they were ignored when the caller started, or the
// command runs Aside.
//
// On Linux Start makes the caller's process a child subreaper, for good. Should the warden be killed, every
// child of the process that is not a warden is taken for an orphan of the command; a caller with other children should know.
//
// Whoever calls Start must call Kill in the end, even when the command has exited.
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
			return nil, &StartError{Name: args[0], Code: CodeNotExecutable, Why: fmt.Sprintf("its working directory cannot be used: %v", err), Err: err}
		} else if !info.IsDir() {
			return nil, &StartError{Name: args[0], Code: CodeNotExecutable, Why: o.Dir + " is to be its working directory, but is no directory", Err: syscall.ENOTDIR}
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
		for _, sig := range passedOn {
			// Notify would undo nohup, here and in the command.
			if !signal.Ignored(sig) {
				signal.Notify(c.signals, sig)
			}
		}
	}
	foreground := c.tty.lendAtOnce(o.Stdin, o.Stdout)
	b, events, err := launch(ctx, args, &o, foreground)
	if foreground {
		c.tty.noteLent() // even if the command failed to start: it may have got that far
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

// streams are the command's three files; done closes what was opened for it.
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

// follow acts on what happens to the command.
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

// relay passes on the caller's signals.
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

// Pid is the process id of the command itself; its process group has the same number.
func (c *Child) Pid() int { return c.body.id() }

// Done is closed when the command itself has exited. Descendants may still run: see Alive and Kill.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait returns how the command itself ended, once it has. Descendants may still run: see Alive and Kill.
func (c *Child) Wait() (Status, error) {
	<-c.done
	return c.status, c.err
}

// Signal sends sig to the command's process group. It returns without waiting for the delivery; after the
// command itself has exited nothing is sent.
func (c *Child) Signal(sig syscall.Signal) error {
	select {
	case <-c.done:
		return ErrOver
	default:
		return c.body.signal(sig)
	}
}

// AllowFor lets the command run until d from now and no longer: then the warden kills all of it, even if the caller is stopped
// or too busy to do so. Each call replaces the time set before; without a call there is no limit. Time spent in
// suspend counts; but a command that stood still together with its warden when the time came, because the machine slept or all of it was
// stopped, is not killed at once: it stays frozen for 5 s, in which a further call with time left lets it go on. Other systems than
// Linux have no warden, and there it does nothing.
func (c *Child) AllowFor(d time.Duration) error { return c.body.allowFor(d) }

// Freeze stops the command and all its descendants and returns when they are seen to have stopped. If it fails with
// a *SurvivorsError, the others are stopped nevertheless. Thaw undoes it.
func (c *Child) Freeze(ctx context.Context) error {
	c.mu.Lock()
	c.frozen = true
	c.mu.Unlock()
	return c.body.freeze(ctx)
}

// Thaw continues what Freeze stopped, and a command left stopped because MayContinue said no. Processes that were stopped before
// Freeze stay so.
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

// Terminate asks the command and all its descendants to end (SIGTERM), and continues those that are stopped, so that
// they can. It does not wait.
func (c *Child) Terminate() error {
	c.mu.Lock()
	c.frozen, c.held = false, false
	c.mu.Unlock()
	return c.body.terminate()
}

// Kill ends the command and all its descendants. When it returns nil nothing of them is alive, the command's status is
// known, the terminal is back, and signals have their usual effect on the caller again. It ends the supervision also
// after the command has exited by itself: then it kills what the command left behind. If the context ends first, or some
// processes may not be killed, it gives a *SurvivorsError; it may be called again.
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

// Alive lists the living processes of the command: itself and its descendants, parents first. Zombies are dead.
func (c *Child) Alive() []int { return c.body.alive() }
