package supervise

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tree is all descendants of one process, without that process itself. Its
// methods are not safe for concurrent use.
type tree struct {
	// root returns the process to look below, and its children that do not
	// belong to the command. ok is false if nothing is left.
	root func() (pid int, skip map[int]bool, ok bool)
	// reap collects dead children of this process. It is nil if another process
	// reaps them.
	reap func(dead []proc)

	frozen []proc // the processes that freeze stopped, parents first
}

// freezeBeforeKill bounds how long kill tries to stop everything before it
// begins to kill.
const freezeBeforeKill = time.Second

// look lists the living and the dead processes of the tree, parents first.
func (t *tree) look() (living, dead []proc, err error) {
	root, skip, ok := t.root()
	if !ok {
		return nil, nil, nil
	}
	f, err := readFamily()
	if err != nil {
		return nil, nil, err
	}
	for _, p := range f.below(root, skip) {
		if p.alive() {
			living = append(living, p)
		} else {
			dead = append(dead, p)
		}
	}
	return living, dead, nil
}

// freeze stops everything. It remembers the processes that it stopped, so that
// thaw leaves alone those that were stopped before.
//
// It is done when two walks in a row found nothing that moves. One walk is not
// enough: a fork that was under way when its process was stopped still yields a
// child. The next walk sees it.
func (t *tree) freeze(ctx context.Context) error {
	sent := make(map[proc]bool) // by pid and start time
	refused := make(map[int]bool)
	var pause backoff
	for quiet := 0; quiet < 2; {
		living, _, err := t.look()
		if err != nil {
			return err
		}
		moving := false
		for _, p := range living {
			if p.stopped() || refused[p.pid] {
				continue
			}
			id := proc{pid: p.pid, start: p.start}
			// A process in the kernel (D) that has the signal can do nothing
			// more on its own. If it waits for its vforked child, it waits as
			// long as the child is stopped. The other threads of a dead leader
			// (Z) cannot be seen.
			settled := sent[id] && (p.state == 'D' || p.state == 'Z')
			if settled {
				continue
			}
			moving = true
			switch err := send(p, syscall.SIGSTOP); {
			case err != nil:
				refused[p.pid] = true
			case !sent[id]:
				sent[id] = true
				t.frozen = append(t.frozen, p)
			}
		}
		if moving {
			quiet = 0
		} else {
			quiet++
		}
		if quiet < 2 {
			if err := pause.wait(ctx); err != nil {
				return &SurvivorsError{PIDs: pids(living), Err: err}
			}
		}
	}
	if len(refused) > 0 {
		e := &SurvivorsError{Err: syscall.EPERM}
		for pid := range refused {
			e.PIDs = append(e.PIDs, pid)
		}
		return e
	}
	return nil
}

// thaw continues the processes that freeze stopped. Children come first, so
// that no shell wakes up and finds its job stopped.
func (t *tree) thaw() {
	for i := len(t.frozen) - 1; i >= 0; i-- {
		_ = send(t.frozen[i], syscall.SIGCONT) // fails only if the process is gone: we were able to stop it
	}
	t.frozen = nil
}

// terminate asks everything to end. It also continues all processes, because a
// stopped process cannot react.
func (t *tree) terminate() error {
	living, _, err := t.look()
	if err != nil {
		return err
	}
	var refused []int
	for _, p := range living {
		if send(p, syscall.SIGTERM) != nil {
			refused = append(refused, p.pid)
		}
	}
	for i := len(living) - 1; i >= 0; i-- {
		_ = send(living[i], syscall.SIGCONT)
	}
	t.frozen = nil
	if len(refused) > 0 {
		return &SurvivorsError{PIDs: refused, Err: syscall.EPERM}
	}
	return nil
}

// kill kills everything. It returns when a walk finds nothing alive.
func (t *tree) kill(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, freezeBeforeKill)
	err := t.freeze(short)
	cancel()
	var left *SurvivorsError
	if err != nil && !errors.As(err, &left) {
		return err
	}
	var pause backoff
	for {
		living, dead, err := t.look()
		if err != nil {
			return err
		}
		if t.reap != nil {
			t.reap(dead)
		}
		if len(living) == 0 {
			t.frozen = nil
			return nil
		}
		refused := 0
		for _, p := range living {
			if send(p, syscall.SIGKILL) != nil {
				refused++
			}
		}
		if refused == len(living) {
			return &SurvivorsError{PIDs: pids(living), Err: syscall.EPERM}
		}
		if err := pause.wait(ctx); err != nil {
			return &SurvivorsError{PIDs: pids(living), Err: err}
		}
	}
}

// send signals exactly the process that was seen, never another that got its
// pid afterwards. It is no error if the process is gone.
func send(p proc, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	switch {
	case err == nil:
		defer unix.Close(fd)
		if now, ok := readProc(p.pid); !ok || now.start != p.start {
			return nil
		}
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	case !errors.Is(err, unix.ESRCH):
		// The system has no pidfds: its kernel is older than 5.3, or a sandbox
		// hides them.
		if now, ok := readProc(p.pid); !ok || now.start != p.start {
			return nil
		}
		err = unix.Kill(p.pid, sig)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func pids(ps []proc) []int {
	out := make([]int, len(ps))
	for i, p := range ps {
		out[i] = p.pid
	}
	return out
}

// backoff paces repeated walks. The first follow quickly, because most trees
// are small. Later ones are slow, to spare the machine.
type backoff struct{ next time.Duration }

func (b *backoff) wait(ctx context.Context) error {
	b.next = min(max(2*b.next, 200*time.Microsecond), 100*time.Millisecond)
	timer := time.NewTimer(b.next)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
