package file

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/fsys"
)

// BusyError says that a guard could not be entered in time. Nothing was
// changed. It matches guard.ErrBusy. If the context ended the wait, it also
// matches the context's error.
type BusyError struct {
	Target string
	// PID is the process inside the guard, on Host; 0 if it is unknown. Host is
	// "an unnamed host" if the machine has no name.
	PID    int
	Host   string
	Waited time.Duration

	ended error
}

func (e *BusyError) Error() string {
	who := "a process that could not be found out"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d on %s", e.PID, e.Host)
	}
	text := fmt.Sprintf("%v: %s is inside the guard of %s, after waiting %s; "+
		"try again, and if it stays there, see whether it is stopped (kill -CONT) or kill it: "+
		"that leaves the file whole", guard.ErrBusy, who, e.Target, e.Waited.Round(time.Millisecond))
	if e.ended != nil {
		text += ": " + e.ended.Error()
	}
	return text
}

// Unwrap returns guard.ErrBusy, and the context's error if that ended the wait.
func (e *BusyError) Unwrap() []error {
	if e.ended != nil {
		return []error{guard.ErrBusy, e.ended}
	}
	return []error{guard.ErrBusy}
}

// The line in a sidecar that names the process inside.
const (
	slotNobody   = "nobody is inside\n"
	slotSomebody = "inside is process %d on %s since %s\n"
)

// slotName is the line that names this process.
func slotName() string {
	return fmt.Sprintf(slotSomebody, os.Getpid(), hostName(os.Hostname()), slotTime(time.Now()))
}

// hostName turns an answer of os.Hostname into words. A machine without a name
// gives an error or an empty name.
func hostName(name string, err error) string {
	if err != nil || name == "" {
		return "an unnamed host"
	}
	return name
}

// sign writes the line that names the process inside. It is for people and for
// the next process inside, so it is not synced.
func (in *guardEntry) sign(line string) error {
	name := make([]byte, slotNameSize)
	copy(name, line)
	if _, err := in.file.WriteAt(name, slotInside); err != nil {
		return in.f.explain(err)
	}
	return nil
}

// waiting is one call's bounded wait for the lock.
type waiting struct {
	f        *visit
	ctx      context.Context
	began    time.Time
	deadline time.Time
}

func (v *visit) startWaiting(ctx context.Context) *waiting {
	now := time.Now()
	return &waiting{f: v, ctx: ctx, began: now, deadline: now.Add(max(v.options.LockWait, 0))}
}

// lockMutex waits until no other call through the same File is inside.
func (w *waiting) lockMutex() error {
	select {
	case w.f.mutex <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(time.Until(w.deadline))
	defer timer.Stop()
	select {
	case w.f.mutex <- struct{}{}:
		return nil
	case <-timer.C:
		return w.busy(nil)
	case <-w.ctx.Done():
		return w.busy(w.ctx.Err())
	}
}

// lock waits for other processes. It polls, because neither a deadline nor a
// context can end a blocking flock(2).
func (w *waiting) lock(file fsys.File) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		got, err := guardTryLock(file)
		switch {
		case err != nil:
			return fmt.Errorf("guard %s: locking its sidecar: %w; a guard needs a file system with locks",
				w.f.path, err)
		case got:
			return nil
		case w.ctx.Err() != nil:
			return w.busy(w.ctx.Err())
		case !time.Now().Before(w.deadline):
			return w.busy(nil)
		}
		_ = clock.Sleep(w.ctx, min(pause/2+rand.N(pause), time.Until(w.deadline)))
	}
}

// busy makes the error. It asks the kernel for the process inside, or else
// reads the line that this process has written.
func (w *waiting) busy(ended error) error {
	e := &BusyError{Target: w.f.path, Waited: time.Since(w.began), ended: ended}
	file, err := w.f.fs.Open(w.f.sidecar, os.O_RDONLY, 0)
	if err != nil {
		return e
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		if e.PID = guardLocker(info); e.PID != 0 {
			e.Host = hostName(os.Hostname())
			return e
		}
	}
	name := make([]byte, slotNameSize)
	if n, _ := file.ReadAt(name, slotInside); n == slotNameSize {
		e.PID, e.Host = slotWho(name)
	}
	return e
}

// slotWho reads the line that sign wrote. It returns 0 if the line names
// nobody. A host's name may contain spaces; the time does not.
func slotWho(name []byte) (pid int, host string) {
	line, _, _ := bytes.Cut(name, []byte{0})
	if _, err := fmt.Sscanf(string(line), "inside is process %d on", &pid); err != nil {
		return 0, ""
	}
	_, host, _ = strings.Cut(string(line), " on ")
	end := strings.LastIndex(host, " since ")
	if end < 0 {
		return 0, ""
	}
	return pid, host[:end]
}
