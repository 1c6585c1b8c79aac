package dir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/internal/ground"
	"github.com/croft-dev/croft/internal/turns"
)

// watcher wakes waiters, and tells of operators' acts, by inotify: one
// descriptor and one goroutine for all keys of a store, from the first Watch or
// Acts on.
type watcher struct {
	mu      sync.Mutex
	closed  bool
	inotify *os.File // nil until somebody waits
	fd      int
	waits   map[int32]map[*wait]struct{} // by watch descriptor
	all     map[*wait]struct{}
	acts    turns.Acts
	actsAt  int32 // the watch descriptor of the acts' folder; 0: it is not watched
}

// wait is one waiter. It watches the deepest folder on the way to the key's versions that exists; a change there wakes it and lets it look again
// where to watch.
type wait struct {
	hash string
	wake chan struct{} // holds one wake-up, which stands for any number of changes
	wd   int32
	name string // the next folder on the way: what else happens around it is of no interest; "" means everything is
}

const watchFor = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_ONLYDIR

// Watch wakes at every change of the key made on this machine. On a network mount, where others change it unseen, it is not to be had.
func (r *register) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := r.told(); err != nil {
		return nil, err
	}
	w := &wait{hash: hashOf(key), wake: make(chan struct{}, 1)}
	r.watcher.mu.Lock()
	defer r.watcher.mu.Unlock()
	if err := r.startWatching(); err != nil {
		return nil, err
	}
	if err := r.arm(w); err != nil {
		return nil, err
	}
	r.watcher.all[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		r.watcher.mu.Lock()
		defer r.watcher.mu.Unlock()
		r.watcher.end(w)
	})
	return w.wake, nil
}

// told is why the file system does not tell of changes, or nil if it does.
func (r *register) told() error {
	m, err := ground.MountOf(r.root)
	if err != nil {
		return r.explain(err)
	}
	if m.Kind == ground.Network || m.Kind == ground.Foreign {
		return fmt.Errorf("store %s: its file system (%s) does not tell of changes made elsewhere; "+
			"ask again instead: %w", r.root, m.Name, errors.ErrUnsupported)
	}
	return nil
}

func (r *register) startWatching() error {
	if r.watcher.closed {
		return os.ErrClosed
	}
	if r.watcher.inotify != nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w; ask again instead, or raise fs.inotify.max_user_instances", err)
	}
	r.watcher.fd = fd
	r.watcher.inotify = os.NewFile(uintptr(fd), "inotify")
	r.watcher.waits = map[int32]map[*wait]struct{}{}
	r.watcher.all = map[*wait]struct{}{}
	r.watcher.actsAt = 0
	go r.follow(r.watcher.inotify)
	return nil
}

// arm watches where the next change of the waiter's key will show. The caller holds the mutex.
func (r *register) arm(w *wait) error {
	for range readTries {
		path, name := r.deepest(w.hash)
		mask := uint32(watchFor)
		if path != r.root { // others may write below it
			mask |= unix.IN_DONT_FOLLOW // a link further up may be followed: that wakes a waiter for nothing
		}
		wd, err := unix.InotifyAddWatch(r.watcher.fd, path, mask)
		if errors.Is(err, unix.ENOENT) {
			if err := r.there(); err != nil {
				return err
			}
			if path != r.root {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("inotify %s: %w; ask again instead, or raise fs.inotify.max_user_watches", path, err)
		}
		w.wd, w.name = int32(wd), name
		if r.watcher.waits[w.wd] == nil {
			r.watcher.waits[w.wd] = map[*wait]struct{}{}
		}
		r.watcher.waits[w.wd][w] = struct{}{}
		// What was made between looking and watching was missed: look again.
		if again, _ := r.deepest(w.hash); again == path {
			return nil
		}
		r.watcher.disarm(w)
	}
	return fmt.Errorf("store %s: %s changes faster than it can be watched", r.root, r.home(w.hash))
}

// deepest finds the last folder on the way to a key's versions that exists, and the name of the next.
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

// follow reads events until the descriptor is closed, and then ends all waits.
func (r *register) follow(inotify *os.File) {
	buf := make([]byte, 64<<10)
	for {
		n, err := inotify.Read(buf)
		if err != nil || n == 0 {
			break
		}
		r.watcher.mu.Lock()
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest[0:]))
			mask := binary.NativeEndian.Uint32(rest[4:])
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			name := unix.ByteSliceToString(rest[unix.SizeofInotifyEvent:size])
			rest = rest[size:]
			r.happened(wd, mask, name)
		}
		r.watcher.mu.Unlock()
	}
	r.watcher.mu.Lock()
	defer r.watcher.mu.Unlock()
	for w := range r.watcher.all {
		r.watcher.end(w)
	}
	r.watcher.acts.End()
	if !r.watcher.closed { // it broke: the next who waits begins anew
		_ = inotify.Close()
		r.watcher.inotify = nil
	}
}

// happened wakes those whom an event concerns. They watch anew first: what changes after that they will hear of, what changed before they will see.
func (r *register) happened(wd int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		for w := range r.watcher.all {
			r.rearm(w)
		}
		return
	}
	self := mask&(unix.IN_MOVE_SELF|unix.IN_DELETE_SELF|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0
	if wd == r.watcher.actsAt {
		r.acted(self, name)
	}
	for w := range r.watcher.waits[wd] {
		switch {
		case self || (w.name != "" && w.name == name) || (w.name == "" && mask&unix.IN_ISDIR != 0):
			r.rearm(w)
		case w.name == "":
			w.tell() // a new version: the same folder stays the one to watch
		}
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(r.watcher.waits, wd) // the kernel may use the number again
	}
}

func (r *register) rearm(w *wait) {
	r.watcher.disarm(w)
	if err := r.arm(w); err != nil {
		r.watcher.end(w) // the watch is broken: its channel is closed, and the caller goes on by polling
		return
	}
	w.tell()
}

func (w *wait) tell() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// disarm stops watching the waiter's folder, if nobody else does. The caller holds the mutex.
func (w *watcher) disarm(one *wait) {
	waits := w.waits[one.wd]
	delete(waits, one)
	if len(waits) == 0 && waits != nil {
		delete(w.waits, one.wd)
		if !w.closed {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(one.wd)) // fails if the folder is gone, and the watch with it
		}
	}
}

// end closes a wait's channel, once. The caller holds the mutex.
func (w *watcher) end(one *wait) {
	if _, ok := w.all[one]; !ok {
		return
	}
	delete(w.all, one)
	w.disarm(one)
	close(one.wake)
}

// close ends all waits.
func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	if w.inotify != nil {
		_ = w.inotify.Close() // follow then ends the waits
	}
}
