package dir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/internal/mount"
	"github.com/croft-dev/croft/internal/turns"
)

// watcher is the driver of a store's hub; see package internal/turns. One
// inotify descriptor and one goroutine serve all keys of a store, from the
// first Watch or Acts on.
type watcher struct {
	reg *register
	hub *turns.Hub

	mu      sync.Mutex
	closed  bool
	inotify *os.File // nil until the first subscription
	fd      int
	keys    map[string]*armed             // all subscriptions: keys, and actsTopic
	at      map[int32]map[*armed]struct{} // the same by watch descriptor
}

// armed is a subscription to a key. The watcher watches the deepest existing
// folder on the path to the key's versions. After a change there it finds out
// again which folder to watch.
type armed struct {
	key  string
	hash string
	wd   int32
	next string // the next folder on the path; "": every event in the folder counts
}

const watchFor = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF |
	unix.IN_ONLYDIR

func newWatcher(r *register) *watcher {
	w := &watcher{reg: r}
	w.hub = turns.NewHub(w)
	w.hub.Kept = 0 // watches are scarce: the kernel limits them for each user
	return w
}

// Watch returns a channel that wakes at every change of the key made on this
// machine. It fails on a network mount, where inotify does not see other
// machines' changes.
func (r *register) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := r.watchable(); err != nil {
		return nil, err
	}
	return r.watcher.hub.Watch(ctx, key)
}

// watchable returns nil if inotify sees all changes on this file system, and
// otherwise an error that says why not.
func (r *register) watchable() error {
	m, err := mount.Of(r.root)
	if err != nil {
		return r.explain(err)
	}
	if m.Kind == mount.Network || m.Kind == mount.Foreign {
		return fmt.Errorf("store %s: its file system (%s) does not tell of changes made elsewhere; "+
			"ask again instead: %w", r.root, m.Name, errors.ErrUnsupported)
	}
	return nil
}

// Subscribe begins to watch a key, or operators' acts.
func (w *watcher) Subscribe(_ context.Context, key string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.start(); err != nil {
		return err
	}
	a := &armed{key: key, hash: hashOf(key)}
	if err := w.arm(a); err != nil {
		return err
	}
	w.keys[key] = a
	w.hub.Opened(key)
	return nil
}

// Unsubscribe stops watching it.
func (w *watcher) Unsubscribe(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.keys[key]; a != nil {
		delete(w.keys, key)
		w.disarm(a)
	}
}

// start opens the inotify descriptor. The caller holds the mutex. So does the
// caller of every method below, except follow and close.
func (w *watcher) start() error {
	if w.closed {
		return os.ErrClosed
	}
	if w.inotify != nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w; ask again instead, or raise fs.inotify.max_user_instances",
			err)
	}
	w.fd, w.inotify = fd, os.NewFile(uintptr(fd), "inotify")
	w.keys, w.at = map[string]*armed{}, map[int32]map[*armed]struct{}{}
	go w.follow(w.inotify)
	return nil
}

// arm watches the folder in which the next change of a key will show.
func (w *watcher) arm(a *armed) error {
	r := w.reg
	if a.key == actsTopic {
		return w.armActs(a)
	}
	for range readTries {
		path, next := r.deepest(a.hash)
		mask := uint32(watchFor)
		if path != r.root { // below the root others may plant a link
			mask |= unix.IN_DONT_FOLLOW // a link further up only causes needless wake-ups
		}
		err := w.add(a, path, mask)
		if errors.Is(err, unix.ENOENT) {
			if err := r.checkMount(); err != nil {
				return err
			}
			if path != r.root {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("inotify %s: %w; "+
				"ask again instead, or raise fs.inotify.max_user_watches", path, err)
		}
		a.next = next
		// A folder made between looking and watching was missed: look again.
		if again, _ := r.deepest(a.hash); again == path {
			return nil
		}
		w.disarm(a)
	}
	return fmt.Errorf("store %s: %s changes faster than it can be watched", r.root, r.home(a.hash))
}

// add watches a folder for a key.
func (w *watcher) add(a *armed, path string, mask uint32) error {
	wd, err := unix.InotifyAddWatch(w.fd, path, mask)
	if err != nil {
		return err
	}
	if a.wd = int32(wd); w.at[a.wd] == nil {
		w.at[a.wd] = map[*armed]struct{}{}
	}
	w.at[a.wd][a] = struct{}{}
	return nil
}

// deepest finds the last existing folder on the path to a key's versions, and
// the name of the next.
func (r *register) deepest(hash string) (path, next string) {
	if life, err := r.life(hash); err == nil && life != "" {
		return filepath.Join(r.home(hash), life), ""
	}
	way := []string{r.home(hash), r.shard(hash), r.keys}
	for i, path := range way {
		if _, err := r.fs.Lstat(path); err == nil {
			if i == 0 {
				return path, ""
			}
			return path, filepath.Base(way[i-1])
		}
	}
	return r.root, filepath.Base(r.keys)
}

// follow reads events until the descriptor is closed. If close did not close
// it, it broke: follow ends all waits, and the next wait opens a new one.
func (w *watcher) follow(inotify *os.File) {
	buf := make([]byte, 64<<10)
	for {
		n, err := inotify.Read(buf)
		if err != nil || n == 0 {
			break
		}
		w.mu.Lock()
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest[0:]))
			mask := binary.NativeEndian.Uint32(rest[4:])
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			name := unix.ByteSliceToString(rest[unix.SizeofInotifyEvent:size])
			rest = rest[size:]
			w.happened(wd, mask, name)
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	_ = inotify.Close()
	w.inotify, w.keys, w.at = nil, nil, nil
	w.hub.Broke()
}

// happened handles an event. It watches the right folder before it wakes
// waiters. So waiters see every change made before, and the watch reports every
// change made after.
func (w *watcher) happened(wd int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		for _, a := range w.keys {
			if a.key != actsTopic {
				w.rearm(a)
			}
		}
		return
	}
	self := mask&(unix.IN_MOVE_SELF|unix.IN_DELETE_SELF|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0
	for _, a := range slices.Collect(maps.Keys(w.at[wd])) { // a copy: rearm changes it
		switch {
		case a.key == actsTopic && self:
			w.lose(a)
		case a.key == actsTopic:
			w.acted(name)
		case self || (a.next != "" && a.next == name) || (a.next == "" && mask&unix.IN_ISDIR != 0):
			w.rearm(a)
		case a.next == "":
			w.hub.Changed(a.key) // a new version; the watched folder stays the same
		}
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(w.at, wd) // the kernel may use the number again
	}
}

// rearm finds out again which folder to watch.
func (w *watcher) rearm(a *armed) {
	w.disarm(a)
	if err := w.arm(a); err != nil {
		w.lose(a)
		return
	}
	w.hub.Changed(a.key)
}

// lose ends all waits for a key. Their owners go on by polling, and may watch
// again.
func (w *watcher) lose(a *armed) {
	delete(w.keys, a.key)
	w.disarm(a)
	w.hub.Lose(a.key)
}

// disarm stops watching a folder for a key. With the last key it removes the
// kernel's watch.
func (w *watcher) disarm(a *armed) {
	here := w.at[a.wd]
	if _, ok := here[a]; !ok {
		return
	}
	if delete(here, a); len(here) == 0 {
		delete(w.at, a.wd)
		if !w.closed {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(a.wd)) // fails if the folder is gone
		}
	}
}

// close ends all waits.
func (w *watcher) close() {
	w.mu.Lock()
	if w.inotify != nil && !w.closed {
		_ = w.inotify.Close()
	}
	w.closed = true
	w.mu.Unlock()
	w.hub.End(context.Background())
}
