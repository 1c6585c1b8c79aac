package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/store"
)

// guardEntry is one call's time inside the lock.
type guardEntry struct {
	f     *visit
	file  fsys.File // the sidecar, locked
	state slotState
	doubt bool // the newest slot may not have reached the disk
}

// enter takes the lock and reads the mark. It makes the sidecar if there is
// none.
func (v *visit) enter(ctx context.Context) (*guardEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("guard %s: %w", v.path, err)
	}
	w := v.startWaiting(ctx)
	if err := w.lockMutex(); err != nil {
		return nil, err
	}
	in, err := v.enterLocked(w)
	if err != nil {
		<-v.mutex
		return nil, err
	}
	return in, nil
}

func (v *visit) enterLocked(w *waiting) (*guardEntry, error) {
	old, err := v.inspect()
	if err != nil {
		return nil, err
	}
	for {
		file, err := v.openSidecar(w.ctx, old)
		if err != nil {
			return nil, err
		}
		if err := w.lock(file); err != nil {
			_ = file.Close()
			return nil, err
		}
		in := &guardEntry{f: v, file: file}
		current, err := in.isCurrent()
		if err == nil && current {
			if err = in.read(); err == nil {
				if err = setSidecarPermissions(file, old); err != nil {
					err = v.explain(err)
				}
			}
		}
		if err == nil && current {
			return in, nil
		}
		in.unlock()
		if err != nil {
			return nil, err
		}
		// Somebody removed the sidecar while this call waited. The lock is on a
		// file that no other process will find: try again.
	}
}

// isCurrent reports whether the locked file is still the one at the sidecar's
// path.
func (in *guardEntry) isCurrent() (bool, error) {
	if err := in.f.checkFolder(); err != nil {
		return false, err
	}
	if err := in.f.unchained("nothing was changed: try again"); err != nil {
		return false, err
	}
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
	// Its other name may be any user's file. Count the links at the path: the
	// open file may have had only one a moment ago.
	if n := guardLinks(there); n > 1 && there.Mode().IsRegular() {
		return false, &SidecarError{Path: in.f.sidecar, Reason: fmt.Sprintf("it has %d hard links", n)}
	}
	return fsys.SameFile(mine, there), nil
}

// read reads the mark under the lock and signs in.
//
// If the last process inside did not sign out, it died here, or its disk
// failed. Then read writes its newest slot once more and syncs it. Only after
// that may the other slot, which did reach the disk, be overwritten.
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
		return in.initSidecar()
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

// initSidecar writes a new sidecar's first content. It writes and syncs the
// first line before the rest, because a power cut may keep a file's length
// without its content. A sidecar of full length with nothing but zeros counts
// as damaged: it might have had a mark.
func (in *guardEntry) initSidecar() error {
	if _, err := in.file.WriteAt(slotBirth[:len(slotUnborn)], 0); err != nil {
		return in.f.explain(err)
	}
	if err := in.file.Sync(); err != nil {
		return in.f.explain(err)
	}
	if _, err := in.file.WriteAt(slotBirth[len(slotUnborn):], int64(len(slotUnborn))); err != nil {
		return in.f.explain(err)
	}
	if err := in.sign(slotName()); err != nil {
		return err
	}
	return in.settleBirth()
}

// settleBirth syncs a sidecar that has no mark yet, and its name.
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

// advance makes next the durable state. The first time it writes both slots, so
// that nothing remains of the sidecar's first content.
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

// recheck looks whether a chain of versions has begun meanwhile: it may not
// have seen this change. On a mount that may not keep locks, recheck reads the
// mark again. If it differs from the mark that this call wrote, another process
// was inside.
func (in *guardEntry) recheck() error {
	if err := in.f.unchained("whether this change counts is not known: look at the mark"); err != nil {
		return store.Unknown(err)
	}
	if !in.f.remote {
		return nil
	}
	now, err := in.f.look(context.Background())
	if err != nil {
		return err
	}
	if now.generation != in.state.generation || now.mark != in.state.mark {
		return fmt.Errorf("guard %s: the mark is of token %d, this call made it %d: %w",
			in.f.path, now.mark.Token, in.state.mark.Token, ErrLockNotKept)
	}
	return nil
}

// leave signs out and releases the lock. It does not sign out if the newest
// slot may not have reached the disk: the next process then writes it again.
func (in *guardEntry) leave() {
	if !in.doubt {
		_ = in.sign(slotNobody)
	}
	in.unlock()
	<-in.f.mutex
}

func (in *guardEntry) unlock() {
	guardUnlock(in.file)
	_ = in.file.Close()
}
