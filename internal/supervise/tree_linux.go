package supervise

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tree is everything that descends from one process, that process not included. Its methods are not safe for concurrent use.
type tree struct {
	// root names the process to look below, and its children that are none of ours. No root: nothing is left.
	root func() (pid int, skip map[int]bool, ok bool)
	// reap collects the dead that have become children of this process; nil if they are somebody else's.
	reap func(dead []proc)

	frozen []proc // what freeze stopped, parents first
}

// freezeBeforeKill bounds how long kill tries to have everything stopped before it kills what it sees.
const freezeBeforeKill = time.Second

// look lists the living, parents first.
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

// freeze stops everything, and remembers what it stopped: a process that was already stopped is for thaw to leave alone.
//
// It is done when two walks in a row found nothing that moves. One is not enough: a fork that was under way when its
// process was stopped still yields a child, which the next walk sees.
func (t *tree) freeze(ctx context.Context) error {
	sent := make(map[proc]bool) // keyed by pid and start
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
			// A process in the kernel (D) that has its signal can do nothing more on its own, and one that waits for
			// its vforked child stays there as long as the child is stopped. The other threads of a dead leader (Z) do not show.
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

// thaw continues what freeze stopped, children first, so that no shell wakes up to find its job stopped.
func (t *tree) thaw() {
	for i := len(t.frozen) - 1; i >= 0; i-- {
		_ = send(t.frozen[i], syscall.SIGCONT) // gone, or it would not have let itself be stopped
	}
	t.frozen = nil
}

// terminate asks everything to end. A stopped process cannot answer, so all are continued, too.
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

// kill ends everything and returns when a walk finds nobody alive.
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

// send signals exactly the process that was seen, never one that got its pid afterwards. That it is gone is no error.
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
		// No pidfds: a kernel before 5.3, or a sandbox that hides them.
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

// backoff paces repeated walks: the first ones quickly, for the common small tree, later ones so as not to load the machine.
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
