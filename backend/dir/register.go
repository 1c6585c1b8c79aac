package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// register is the compare-and-swap register in a directory. The package comment
// says how it works and why it is safe.
type register struct {
	*layout
	clock   *fsClock
	newLife func(time.Time) string // a fresh name on every call; tests of the tests break it
	watcher *watcher
	recall  recall

	mu     sync.Mutex
	synced map[string]bool // shards whose own entry this process knows to be durable
	trash  []string        // folders in the staging folder that wait for removal
}

func newRegister(l *layout, clock *fsClock) *register {
	r := &register{layout: l, clock: clock, newLife: newLife, synced: map[string]bool{}}
	r.watcher = newWatcher(r)
	return r
}

// Limits for reading a key while others change it.
const (
	// emptyTries is how often an empty folder is listed before it counts as
	// empty. The pauses between are 1, 2 and 4 ms.
	emptyTries = 4
	// readTries bounds the attempts to read one version. An attempt fails only
	// if another process changes the key in those few microseconds.
	readTries = 1000
)

// head is a key's newest version, and the record in it.
type head struct {
	at     position // zero: the store remembers nothing of the key
	record tenure.Record
	// dropped is true if the newest version is a tombstone. The store remembers
	// nothing of the key, but the life's folder is still in the way.
	dropped bool
	file    fs.FileInfo // of the version file, if it was just read
}

// errEmpty means that a folder holds nothing of the store's.
var errEmpty = errors.New("empty folder")

// Load returns the newest version of a key. It reads the time last.
func (r *register) Load(ctx context.Context, key string) (cas.Entry, error) {
	hash := hashOf(key)
	h, err := r.readHead(ctx, hash, emptyTries)
	if err == nil && h.at.life == "" {
		err = r.checkMount()
	}
	if unwritable(err) { // this user may not read it
		err = store.Fault(err)
	}
	if err != nil {
		return cas.Entry{}, err
	}
	if h.file != nil {
		r.recall.keep(hash, h.at, h.record, h.file)
	}
	return r.entry(h)
}

// entry turns a head into the entry that package cas expects. If the directory
// cannot be written, the record can be read without the time.
func (r *register) entry(h head) (cas.Entry, error) {
	now, err := r.clock.now()
	if err != nil && !unwritable(err) {
		return cas.Entry{}, err
	}
	if h.at.life == "" || h.dropped {
		return cas.Entry{Now: now}, nil
	}
	return cas.Entry{Record: h.record, Version: h.at.version(), Now: now}, nil
}

// Now is the file system's clock.
func (r *register) Now(context.Context) (time.Time, error) {
	now, err := r.clock.now()
	if unwritable(err) {
		err = store.Fault(err)
	}
	return now, err
}

// Close closes the clock and ends all waits.
func (r *register) Close() error {
	r.watcher.close()
	return r.clock.close()
}

// readHead reads a key's head. It lists an empty folder up to tries times. An
// empty listing proves little on a network mount, or between one life's end and
// the next one's birth.
func (r *register) readHead(ctx context.Context, hash string, tries int) (head, error) {
	empty := 0
	for range readTries {
		if ctx.Err() != nil {
			return head{}, context.Cause(ctx)
		}
		h, err := r.readHeadOnce(hash)
		switch {
		case errors.Is(err, errEmpty):
			if empty++; empty >= tries {
				return head{}, nil
			}
			_ = clock.Sleep(ctx, time.Millisecond<<(empty-1)) // the loop checks ctx
		case errors.Is(err, errMoved):
		default:
			return h, err
		}
	}
	return head{}, fmt.Errorf("store %s: %s changes faster than it can be read; try again", r.root, r.home(hash))
}

// errMoved means that a listed version was gone when it was read.
var errMoved = errors.New("changed while it was read")

// readHeadOnce reads a key's head without trying again.
func (r *register) readHeadOnce(hash string) (head, error) {
	life := r.recall.life(hash) // in most cases the key still has this life
	if life == "" {
		var err error
		if life, err = r.life(hash); err != nil || life == "" {
			return head{}, err
		}
	}
	folder := filepath.Join(r.home(hash), life)
	numbers, err := r.numbers(folder)
	if err != nil || len(numbers) == 0 {
		r.recall.forget(hash)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return head{}, errMoved
	case err != nil:
		return head{}, r.explain(err)
	case len(numbers) == 0:
		return head{}, errEmpty
	}
	return r.read(hash, position{life, numbers[len(numbers)-1]})
}

// read reads one version.
func (r *register) read(hash string, at position) (head, error) {
	h := head{at: at}
	path := filepath.Join(r.home(hash), at.life, versionName(at.number))
	file, err := r.fs.Lstat(path)
	if err == nil {
		if file.IsDir() {
			h.dropped = true
			return h, nil
		}
		if device(file) != r.fileDevice { // another store is mounted here
			return head{}, r.unmounted()
		}
		var known bool
		if h.record, known = r.recall.version(hash, at, file); known {
			return h, nil
		}
	}
	var data []byte
	if err == nil {
		data, err = r.fs.ReadFile(path, recordMost)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return head{}, errMoved
	case foreignReason(err) != "":
		return head{}, &DamagedError{Path: path, Why: foreignReason(err)}
	case err != nil:
		return head{}, r.explain(err)
	}
	if h.record, err = decodeRecord(data, hash); err != nil {
		return head{}, &DamagedError{Path: path, Why: err.Error()}
	}
	h.file = file
	return h, nil
}

// life finds the folder of a key's present life. It returns "" if the key has
// no folder, and errEmpty if that folder is empty.
func (r *register) life(hash string) (string, error) {
	names, err := r.fs.Names(r.home(hash))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", r.explain(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !isLife(name) })
	switch len(names) {
	case 0:
		return "", errEmpty
	case 1:
		return names[0], nil
	}
	return "", &DamagedError{Path: r.home(hash), Why: fmt.Sprintf(
		"it holds %d lives of the key, as if two stores had been copied together", len(names))}
}

// numbers lists the versions in a life's folder, ascending. One system call
// lists so few files. Local file systems let no link, unlink or rename in the
// folder happen during that call.
func (r *register) numbers(folder string) ([]uint64, error) {
	names, err := r.fs.Names(folder)
	if err != nil {
		return nil, err
	}
	numbers := make([]uint64, 0, len(names))
	for _, name := range names {
		if n, ok := parseVersionName(name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
