package crash

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/croft-dev/croft/internal/fsys"
)

// Recorder records every change below a folder, which must be empty at first.
// It is the file system of a directory store or a file guard. For SQLite, use
// [RecordSQLite]. Its methods are safe for concurrent use. Changes of several
// goroutines are recorded in the order in which they happen.
type Recorder struct {
	fsys.FS // reads pass through
	top     string

	mu    sync.Mutex
	ops   []*op
	nodes int
	names map[string]int        // numbers of all existing files and folders, by path below top
	live  map[int][]string      // the paths of each number: a file may have several
	due   []string              // folders that SQLite is about to sync
	loses func(rel string) bool // a planted flaw: SQLite's syncs of these files are lost
}

// NewRecorder records changes below top. top itself counts as safe.
func NewRecorder(top string) *Recorder {
	return &Recorder{FS: fsys.OS{}, top: top, names: map[string]int{".": 0}, live: map[int][]string{0: {"."}}}
}

// Top returns the folder whose changes are recorded.
func (r *Recorder) Top() string { return r.top }

// Note records a client's request or answer, between the changes.
func (r *Recorder) Note(note any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, &op{kind: opNote, note: note, text: fmt.Sprintf("-- %v", note)})
}

// Len returns how many steps have been recorded so far.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ops)
}

// Text describes the recorded steps of a range, for people.
func (r *Recorder) Text(from, to int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for i := max(from, 0); i < min(to, len(r.ops)); i++ {
		fmt.Fprintf(&b, "%4d %s\n", i+1, r.ops[i].text)
	}
	return b.String()
}

// below returns a path relative to top, and false if it lies elsewhere.
func (r *Recorder) below(path string) (string, bool) {
	rel, err := filepath.Rel(r.top, path)
	return rel, err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// where returns the folder of a path, and the name in it.
func (r *Recorder) where(rel string) (dir int, name string) {
	dir, ok := r.names[filepath.Dir(rel)]
	if !ok {
		panic("crash: a change in a folder that was never recorded: " + rel)
	}
	return dir, filepath.Base(rel)
}

// do makes a change and records it. No other change comes in between.
func (r *Recorder) do(change func() error, record func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := change()
	if err == nil {
		record()
	}
	return err
}

func (r *Recorder) add(o *op, format string, args ...any) {
	o.text = fmt.Sprintf(format, args...)
	r.ops = append(r.ops, o)
}

// bind and unbind keep names and live up to date.
func (r *Recorder) bind(rel string, node int) {
	r.names[rel] = node
	r.live[node] = append(r.live[node], rel)
}

func (r *Recorder) unbind(rel string) int {
	node, ok := r.names[rel]
	if !ok {
		return gone
	}
	delete(r.names, rel)
	r.live[node] = slices.DeleteFunc(r.live[node], func(name string) bool { return name == rel })
	return node
}

// born records a new file or folder.
func (r *Recorder) born(rel, how string) int {
	r.nodes++
	dir, name := r.where(rel)
	r.unbind(rel)
	r.bind(rel, r.nodes)
	r.add(&op{kind: opNames, names: []naming{{dir, name, r.nodes}}, node: r.nodes}, "%s %s", how, rel)
	return r.nodes
}

// Open opens a file, and records it if that creates or empties the file. Writes
// and syncs of the opened file are recorded too.
func (r *Recorder) Open(path fsys.Path, flag int, perm fs.FileMode) (f fsys.File, err error) {
	rel, mine := r.below(path.String())
	if !mine {
		return r.FS.Open(path, flag, perm)
	}
	node := 0
	err = r.do(func() error { f, err = r.FS.Open(path, flag, perm); return err }, func() {
		node = r.opened(rel, flag&os.O_CREATE != 0, flag&os.O_TRUNC != 0)
	})
	if err != nil {
		return nil, err
	}
	return &recorded{File: f, r: r, node: node, rel: rel}, nil
}

// opened returns the number of a file that has just been opened.
func (r *Recorder) opened(rel string, create, truncate bool) int {
	node, known := r.names[rel]
	switch {
	case !known && create:
		return r.born(rel, "create")
	case !known:
		panic("crash: " + rel + " was there before the recording began")
	case truncate:
		r.add(&op{kind: opTruncate, node: node}, "empty %s", rel)
	}
	return node
}

// Link records a second name of a file.
func (r *Recorder) Link(from, to fsys.Path) error {
	return r.do(func() error { return r.FS.Link(from, to) }, func() {
		source, _ := r.below(from.String())
		target, _ := r.below(to.String())
		dir, name := r.where(target)
		node := r.names[source]
		r.bind(target, node)
		r.add(&op{kind: opNames, names: []naming{{dir, name, node}}}, "link %s to %s", source, target)
	})
}

// Rename records the change of both names. Paths below a renamed folder move
// along.
func (r *Recorder) Rename(from, to fsys.Path) error {
	return r.do(func() error { return r.FS.Rename(from, to) }, func() {
		source, _ := r.below(from.String())
		target, _ := r.below(to.String())
		oldDir, oldName := r.where(source)
		newDir, newName := r.where(target)
		r.unbind(target)
		node := r.unbind(source)
		for path := range r.names {
			if strings.HasPrefix(path, source+"/") {
				r.bind(target+strings.TrimPrefix(path, source), r.unbind(path))
			}
		}
		r.bind(target, node)
		r.add(
			&op{kind: opNames, names: []naming{{oldDir, oldName, gone}, {newDir, newName, node}}},
			"rename %s to %s", source, target,
		)
	})
}

// Remove records that a name is removed.
func (r *Recorder) Remove(path fsys.Path) error {
	return r.do(func() error { return r.FS.Remove(path) }, func() { r.removed(path.String()) })
}

func (r *Recorder) removed(path string) {
	rel, _ := r.below(path)
	dir, name := r.where(rel)
	r.unbind(rel)
	r.add(&op{kind: opNames, names: []naming{{dir, name, gone}}}, "remove %s", rel)
}

// Mkdir records a new folder.
func (r *Recorder) Mkdir(path fsys.Path, perm fs.FileMode) error {
	return r.do(func() error { return r.FS.Mkdir(path, perm) }, func() {
		rel, _ := r.below(path.String())
		r.born(rel, "mkdir")
		r.ops[len(r.ops)-1].size = folder
	})
}

// folder marks a new node as a folder, in the size field of its op.
const folder = -1

// SyncDir records that the names in a folder are safe. It does not sync the
// real folder, because the power cut is only simulated.
func (r *Recorder) SyncDir(path fsys.Path) error {
	return r.do(func() error { _, err := r.FS.Lstat(path); return err }, func() {
		if rel, mine := r.below(path.String()); mine {
			r.syncedDir(rel)
		}
	})
}

func (r *Recorder) syncedDir(rel string) {
	r.add(&op{kind: opSyncDir, node: r.names[rel]}, "syncdir %s", rel)
}

// recorded is an open file whose changes are recorded.
type recorded struct {
	fsys.File
	r    *Recorder
	node int
	rel  string
	at   int64
}

func (f *recorded) Write(p []byte) (n int, err error) {
	err = f.r.do(func() error { n, err = f.File.WriteAt(p, f.at); return err }, func() {
		f.r.wrote(f.node, f.rel, p, f.at)
	})
	f.at += int64(n)
	return n, err
}

func (f *recorded) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.r.do(func() error { n, err = f.File.WriteAt(p, off); return err }, func() {
		f.r.wrote(f.node, f.rel, p, off)
	})
	return n, err
}

func (r *Recorder) wrote(node int, rel string, p []byte, off int64) {
	r.add(&op{kind: opWrite, node: node, off: off, data: slices.Clone(p)}, "write %s: %d bytes at %d", rel, len(p), off)
}

func (f *recorded) Sync() error {
	return f.r.do(func() error { return nil }, func() { f.r.add(&op{kind: opSync, node: f.node}, "sync %s", f.rel) })
}
