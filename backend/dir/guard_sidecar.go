package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
)

// SidecarError says that a sidecar cannot be trusted: the mark is unknown, so nothing is admitted until it is repaired.
type SidecarError struct {
	Path, Reason string
}

func (e *SidecarError) Error() string {
	return fmt.Sprintf("the sidecar %s is damaged (%s), and with it the memory of whose writes count; restore it from where it was moved or copied, or, once no old writer "+
		"is alive, remove it and raise the fence with the token of the present owner: rm '%[1]s' && croft guard raise '%[3]s'",
		e.Path, e.Reason, strings.TrimSuffix(e.Path, guardSuffix))
}

// ErrLockNotKept is matched when another process was inside a guard at the same time: the mount does not keep locks. The content may be of either, and
// the mark too. The owner with the newest token should write again.
var ErrLockNotKept = errors.New("another writer was inside the guard at the same time: this mount does not keep locks")

// lookTries is how often a sidecar that looks damaged is read again, 5 ms apart, before it is called so: without the lock, a reader who is slow between
// the two slots can meet both of them being written.
const lookTries = 20

// look reads the sidecar without the lock.
func (f *File) look(ctx context.Context) (slotState, error) {
	var damage error
	for try := range lookTries {
		if try > 0 {
			rest(ctx, 5*time.Millisecond)
		}
		if err := ctx.Err(); err != nil {
			return slotState{}, fmt.Errorf("guard %s: %w", f.path, err)
		}
		file, err := f.fs.Open(f.sidecar, os.O_RDONLY|guardOpenFlags, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return slotState{}, nil
		}
		if err != nil {
			return slotState{}, f.explain(err)
		}
		image, err := f.readImage(file)
		_ = file.Close()
		if err != nil {
			return slotState{}, err
		}
		s, _, err := slotNewest(image)
		if err == nil {
			return s, nil
		}
		damage = err
	}
	return slotState{}, f.distrust(damage)
}

// distrust says why a sidecar could not be read.
func (f *File) distrust(err error) error {
	if errors.Is(err, errSlotFormat) {
		return fmt.Errorf("guard %s: its sidecar %s: %w", f.path, f.sidecar, err)
	}
	return &SidecarError{Path: f.sidecar, Reason: err.Error()}
}

// readImage reads a whole sidecar, and one byte more if it is too long.
func (f *File) readImage(file fsys.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, f.explain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, &SidecarError{Path: f.sidecar, Reason: "it is no regular file"}
	}
	image := make([]byte, slotFile+1)
	n, err := file.ReadAt(image, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, f.explain(err)
	}
	return image[:n], nil
}

// explain names the sidecar in an error of the file system, and the remedy where there is one.
func (f *File) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("guard %s: %w; the sidecar %s has the permissions of the file: whoever may write the one must be able to write the other and their directory", f.path, err, f.sidecar)
	case guardIsLink(err):
		return &SidecarError{Path: f.sidecar, Reason: "it is a symbolic link"}
	}
	return fmt.Errorf("guard %s: %w", f.path, err)
}

// guardEntry is one call's stay inside the lock.
type guardEntry struct {
	f     *File
	file  fsys.File // the sidecar, locked
	state slotState
	doubt bool // what is in the sidecar may not have reached the disk
}

// enter takes the lock and reads the mark, making the sidecar if there is none.
func (f *File) enter(ctx context.Context) (*guardEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("guard %s: %w", f.path, err)
	}
	w := f.startWaiting(ctx)
	if err := w.takeTurn(); err != nil {
		return nil, err
	}
	for {
		file, err := f.openSidecar()
		if err == nil {
			err = w.lock(file)
		}
		if err != nil {
			if file != nil {
				_ = file.Close()
			}
			<-f.turn
			return nil, err
		}
		in := &guardEntry{f: f, file: file}
		same, err := in.isCurrent()
		if err == nil && same {
			err = in.read()
			if err == nil {
				return in, nil
			}
		}
		in.unlock()
		if err != nil {
			<-f.turn
			return nil, err
		}
		// Somebody removed the sidecar while this call waited for it. The lock is on a file that nobody else will find.
	}
}

// openSidecar opens the sidecar for writing, making an empty one if there is none, and gives it the artifact's permissions.
func (f *File) openSidecar() (fsys.File, error) {
	old, err := f.inspect()
	if err != nil {
		return nil, err
	}
	perm := fs.FileMode(0o666) // and the umask
	if old != nil {
		perm = old.Mode().Perm()
	}
	for {
		// Not in one step: a sticky directory may forbid O_CREATE on what another user made (fs.protected_regular).
		file, err := f.fs.Open(f.sidecar, os.O_RDWR|guardOpenFlags, 0)
		if errors.Is(err, fs.ErrNotExist) {
			file, err = f.fs.Open(f.sidecar, os.O_RDWR|os.O_CREATE|os.O_EXCL|guardOpenFlags, perm)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		if err != nil {
			return nil, f.explain(err)
		}
		if old != nil {
			if err := f.dressSidecar(file, old); err != nil {
				_ = file.Close()
				return nil, err
			}
		}
		return file, nil
	}
}

// dressSidecar gives the sidecar the artifact's permissions where they differ and the system lets us: only its owner or root can. For others the
// sidecar is good as it is, or they could not have opened it.
func (f *File) dressSidecar(file fsys.File, old fs.FileInfo) error {
	info, err := file.Stat()
	if err != nil {
		return f.explain(err)
	}
	uid, gid := guardChown(info, old)
	if uid >= 0 || gid >= 0 {
		if err := file.Chown(uid, gid); err != nil && !errors.Is(err, fs.ErrPermission) {
			return f.explain(err)
		}
	}
	if info.Mode().Perm() != old.Mode().Perm() {
		if err := file.Chmod(old.Mode().Perm()); err != nil && !errors.Is(err, fs.ErrPermission) {
			return f.explain(err)
		}
	}
	return nil
}

// isCurrent reports whether the locked file is still the one at the sidecar's path.
func (in *guardEntry) isCurrent() (bool, error) {
	mine, err := in.file.Stat()
	if err != nil {
		return false, in.f.explain(err)
	}
	there, err := in.f.fs.Lstat(in.f.sidecar)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, in.f.explain(err)
	}
	return os.SameFile(mine, there), nil
}

// read reads the mark under the lock and signs in. Whoever was inside before and has not signed out died here, or its disk failed: what it wrote is
// written once more and synced, before the slot before it, which did reach the disk, is written over.
func (in *guardEntry) read() error {
	image, err := in.f.readImage(in.file)
	if err != nil {
		return err
	}
	state, born, err := slotNewest(image)
	if err != nil {
		return in.f.distrust(err)
	}
	in.state = state
	if !born {
		return in.bear()
	}
	in.doubt = !bytes.HasPrefix(image[slotInside:], []byte(slotNobody))
	if err := in.sign(slotName()); err != nil {
		return err
	}
	if in.doubt && state.generation > 0 {
		if err := in.put(state); err != nil {
			return err
		}
	}
	in.doubt = false
	return in.settleBirth()
}

// bear writes a new sidecar's first content.
func (in *guardEntry) bear() error {
	if _, err := in.file.WriteAt(slotBirth, 0); err != nil {
		return in.f.explain(err)
	}
	if err := in.sign(slotName()); err != nil {
		return err
	}
	return in.settleBirth()
}

// settleBirth makes a sidecar without a mark durable, with its name, before it gets its first.
func (in *guardEntry) settleBirth() error {
	if in.state.generation > 0 {
		return nil
	}
	if err := in.file.Sync(); err != nil {
		return in.f.explain(err)
	}
	if err := in.f.fs.SyncDir(in.f.folder); err != nil {
		return in.f.explain(err)
	}
	return nil
}

// advance makes next the durable state. The first time it writes both slots, so that nothing is left of the sidecar's birth.
func (in *guardEntry) advance(next slotState) error {
	next.changed = time.Now()
	for {
		next.generation = in.state.generation + 1
		in.doubt = true
		if err := in.put(next); err != nil {
			return err
		}
		in.doubt = false
		if in.state = next; next.generation > 1 {
			return nil
		}
	}
}

// put writes one slot and syncs it.
func (in *guardEntry) put(s slotState) error {
	if _, err := in.file.WriteAt(s.encode(), s.offset()); err != nil {
		return in.f.explain(err)
	}
	if err := in.file.Sync(); err != nil {
		return in.f.explain(err)
	}
	return nil
}

// recheck reads the mark anew on a mount that may not keep locks: if it is not what this call has written, another was inside.
func (in *guardEntry) recheck() error {
	if !in.f.remote {
		return nil
	}
	now, err := in.f.look(context.Background())
	if err != nil {
		return err
	}
	if now.generation != in.state.generation || now.mark != in.state.mark {
		return fmt.Errorf("guard %s: the mark is of token %d, this call made it %d: %w", in.f.path, now.mark.Token, in.state.mark.Token, ErrLockNotKept)
	}
	return nil
}

// leave signs out, unless the disk is in doubt, and gives the lock back.
func (in *guardEntry) leave() {
	if !in.doubt {
		_ = in.sign(slotNobody)
	}
	in.unlock()
	<-in.f.turn
}

func (in *guardEntry) unlock() {
	guardUnlock(in.file)
	_ = in.file.Close()
}
