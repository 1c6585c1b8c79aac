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

// actsTopic stands for operators' acts in a store's hub. It cannot be a key,
// because no key is empty.
const actsTopic = ""

// Acts returns a channel that yields the keys that operators act on, on this
// machine. It reads them from the files that Announce leaves.
func (r *register) Acts(ctx context.Context) (<-chan string, error) {
	if err := r.watchable(); err != nil {
		return nil, err
	}
	return r.watcher.hub.Listen(ctx, actsTopic)
}

// armActs watches the acts folder.
func (w *watcher) armActs(a *armed) error {
	r := w.reg
	if err := r.checkMount(); err != nil { // make nothing below a lost mount
		return err
	}
	if err := r.makeActs(); err != nil {
		return r.explain(err)
	}
	if err := w.add(a, r.acts, watchFor|unix.IN_DONT_FOLLOW); err != nil {
		return fmt.Errorf("inotify %s: %w; raise fs.inotify.max_user_watches, "+
			"or see whether it is a folder", r.acts, err)
	}
	return nil
}

// makeActs makes the acts folder if it is missing.
func (r *register) makeActs() error {
	if _, err := r.fs.Lstat(r.acts); err == nil {
		return nil // a folder; if it is anything else, the watch or the rename fails
	}
	if err := r.installFolder(r.acts, "acts"); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // another was faster
}

// acted tells listeners of the key that is named in a new file in acts.
func (w *watcher) acted(name string) {
	if !isAct(name) {
		return
	}
	key, err := w.reg.fs.ReadFile(filepath.Join(w.reg.acts, name), fence.MaxKey)
	if err == nil && fence.CheckKey(string(key)) == nil && hashOf(string(key)) == name {
		w.hub.Acted(actsTopic, string(key))
	}
}

// Announce leaves a file for listeners. It does not sync the file: no listener
// survives a power cut.
func (r *register) Announce(_ context.Context, key string) {
	if r.watchable() != nil {
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
