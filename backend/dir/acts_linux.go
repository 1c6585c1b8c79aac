package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
)

// Acts tells of operators' acts on this machine: of the files that Announce
// leaves.
func (r *register) Acts(ctx context.Context) (<-chan string, error) {
	if err := r.told(); err != nil {
		return nil, err
	}
	r.watcher.mu.Lock()
	defer r.watcher.mu.Unlock()
	if err := r.startWatching(); err != nil {
		return nil, err
	}
	if r.watcher.actsAt == 0 {
		if err := r.watchActs(); err != nil {
			return nil, err
		}
	}
	return r.watcher.acts.Listen(ctx), nil
}

// watchActs begins to watch the acts' folder. The caller holds the mutex.
func (r *register) watchActs() error {
	if err := r.there(); err != nil { // nothing is made below a lost mount
		return err
	}
	if err := r.makeActs(); err != nil {
		return r.explain(err)
	}
	wd, err := unix.InotifyAddWatch(r.watcher.fd, r.acts, watchFor|unix.IN_DONT_FOLLOW)
	if err != nil {
		return fmt.Errorf("inotify %s: %w; raise fs.inotify.max_user_watches, "+
			"or see whether it is a folder", r.acts, err)
	}
	r.watcher.actsAt = int32(wd)
	return nil
}

// makeActs makes the acts' folder if it is missing.
func (r *register) makeActs() error {
	if _, err := r.fs.Lstat(r.acts); err == nil {
		return nil // a folder, or what the watch or the rename will fail at
	}
	if err := r.placeFolder(r.acts, "acts"); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // another was faster
}

// acted tells of the act that a file in the acts' folder is about. If the
// folder itself has gone, listeners must ask anew. The caller holds the mutex.
func (r *register) acted(gone bool, name string) {
	switch {
	case gone:
		_, _ = unix.InotifyRmWatch(r.watcher.fd, uint32(r.watcher.actsAt)) // if it was moved
		r.watcher.actsAt = 0
		r.watcher.acts.End()
	case isAct(name) && r.watcher.acts.Heard():
		key, err := r.fs.ReadFile(filepath.Join(r.acts, name), fence.MaxKey)
		if err == nil && fence.CheckKey(string(key)) == nil && hashOf(string(key)) == name {
			r.watcher.acts.Tell(string(key))
		}
	}
}

// Announce leaves a file for those who listen. It is not synced: nobody listens
// any more after a power cut.
func (r *register) Announce(_ context.Context, key string) {
	if r.told() != nil {
		return // nobody can listen
	}
	temp, to := r.temp("act"), filepath.Join(r.acts, hashOf(key))
	_, err := r.writeFile(temp, []byte(key), func(fsys.File) error { return nil })
	if err == nil {
		err = r.fs.Rename(temp, to)
	}
	if errors.Is(err, fs.ErrNotExist) && r.makeActs() == nil {
		err = r.fs.Rename(temp, to)
	}
	if err != nil {
		_ = r.fs.Remove(temp)
	}
}
