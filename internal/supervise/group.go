//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// group is a command of which only the process group is known. Descendants that
// leave the group are out of reach. All of it survives a SIGKILL of the caller.
type group struct {
	pid    int
	mu     sync.Mutex // excludes signals while reaping, so that none hits a recycled pid
	reaped bool
}

func launchGroup(ctx context.Context, args []string, o *Options, foreground bool) (body, <-chan event, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	files, done, err := o.streams()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	attr := &syscall.ProcAttr{
		Dir: o.Dir,
		Env: o.environ(),
		Sys: &syscall.SysProcAttr{Setpgid: true, Foreground: foreground},
	}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	if foreground {
		attr.Sys.Ctty = int(files[0].Fd())
	}
	pid, failed := spawn(args, attr)
	if failed != nil {
		return nil, nil, failed
	}
	g := &group{pid: pid}
	events := make(chan event, 16)
	go g.watch(events)
	return g, events, nil
}

// watch waits for the command to stop or to exit. It polls, because a blocking
// wait would reap outside the lock.
func (g *group) watch(events chan<- event) {
	defer close(events)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		var status syscall.WaitStatus
		g.mu.Lock()
		pid, err := syscall.Wait4(g.pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		g.reaped = pid == g.pid && !status.Stopped() || err != nil && !errors.Is(err, syscall.EINTR)
		reaped := g.reaped
		g.mu.Unlock()
		switch {
		case pid == g.pid && status.Stopped():
			events <- event{stopped: status.StopSignal()}
		case pid == g.pid:
			events <- event{exited: true, status: statusOf(status)}
		case reaped:
			events <- event{exited: true, err: os.NewSyscallError("wait4", err)}
		}
		if reaped {
			return
		}
	}
}

func (g *group) id() int { return g.pid }

func (g *group) signal(sig syscall.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return ErrOver
	}
	return unix.Kill(-g.pid, sig)
}

func (g *group) allowFor(time.Duration) error { return nil }
func (g *group) freeze(context.Context) error { return g.signal(syscall.SIGSTOP) }
func (g *group) thaw()                        { _ = g.signal(syscall.SIGCONT) }

func (g *group) terminate() error {
	if err := g.signal(syscall.SIGTERM); err != nil {
		return err
	}
	return g.signal(syscall.SIGCONT)
}

// refusals is how often in a row kill accepts that the system refuses to signal
// members that cannot be seen. They may be zombies that are reaped in a moment.
const refusals = 200

// kill goes on after the command itself was reaped: the system does not reuse
// its pid while its group has members. It returns nil only if the command was
// reaped, because then the caller learns its status.
func (g *group) kill(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for refused := 0; ; {
		left, err := killGroup(g.pid)
		switch {
		case err != nil:
			if refused++; len(left) > 0 || refused == refusals {
				return &SurvivorsError{PIDs: left, Err: err}
			}
		case len(left) == 0 && g.killAlone():
			return nil
		default:
			refused = 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return &SurvivorsError{PIDs: g.alive(), Err: ctx.Err()}
		}
	}
}

// killAlone kills the command itself, which may have moved to another group. It
// reports whether the command was reaped.
func (g *group) killAlone() (reaped bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reaped {
		_ = unix.Kill(g.pid, syscall.SIGKILL)
	}
	return g.reaped
}

func (g *group) alive() []int { return groupAlive(g.pid) }
