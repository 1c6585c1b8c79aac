//go:build linux || darwin

package crash

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/fsys"
)

// The search must find faults in stores and guards that omit a step which
// survival needs. Each of these file systems breaks the sound code in one way.

// The search must catch each broken directory store.
func TestBrokenDirectoryStoresAreCaught(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(fsys.FS) fsys.FS{
		"files are not synced":              func(fsy fsys.FS) fsys.FS { return unsyncedFiles{fsy} },
		"folders are not synced":            func(fsy fsys.FS) fsys.FS { return unsyncedFolders{fsy, ""} },
		"the store's folder is not synced":  func(fsy fsys.FS) fsys.FS { return unsyncedFolders{fsy, "store"} },
		"the folder of keys is not synced":  func(fsy fsys.FS) fsys.FS { return unsyncedFolders{fsy, "keys"} },
		"the staging folder is not synced":  func(fsy fsys.FS) fsys.FS { return unsyncedFolders{fsy, "tmp"} },
		"files get their name, then a sync": func(fsy fsys.FS) fsys.FS { return lateSync{unsyncedFiles{fsy}, fsy} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDirRun(t, wrap)
			dirLives["dropped and born again"](r) // it has a bit of everything
			wrong := r.search(lifeSearch()).Wrong
			if wrong == "" {
				// Which folders the search recovers depends on the recording.
				// It can miss a fault that shows in few of them.
				t.Log("only the whole search can find it this time")
				wrong = r.search(Search{}).Wrong
			}
			caught(t, name, wrong)
		})
	}
}

// The search must catch each broken file guard.
func TestBrokenFileGuardsAreCaught(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(fsys.FS) fsys.FS{
		"files are not synced":               func(fsy fsys.FS) fsys.FS { return unsyncedFiles{fsy} },
		"the folder is not synced":           func(fsy fsys.FS) fsys.FS { return unsyncedFolders{fsy, ""} },
		"content gets its name, then a sync": func(fsy fsys.FS) fsys.FS { return lateSync{unsyncedFiles{fsy}, fsy} },
		"the mark comes after the artifact":  func(fsy fsys.FS) fsys.FS { return &lateMark{FS: fsy} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newGuardRun(t)
			guardLife(r, wrap)
			caught(t, name, r.rec.Search(t, Search{}, guardLawful).Wrong)
		})
	}
}

// caught logs the finding in one line.
func caught(t *testing.T, name, wrong string) {
	t.Helper()
	if wrong == "" {
		t.Errorf("not noticed: %s", name)
	}
	cut, rest, _ := strings.Cut(wrong, ": ")
	line, _, _ := strings.Cut(rest, "\n")
	law := regexp.MustCompile(`law \d`).FindString(line)
	if law == "" {
		law = "it must open and be whole"
	}
	t.Logf("caught by %q: %s", law+", "+cut, line)
}

// unsyncedFiles loses every sync of a file.
type unsyncedFiles struct{ fsys.FS }

func (u unsyncedFiles) Open(path fsys.Path, flag int, perm fs.FileMode) (fsys.File, error) {
	f, err := u.FS.Open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return deaf{f}, nil
}

type deaf struct{ fsys.File }

func (deaf) Sync() error { return nil }

// unsyncedFolders loses the syncs of folders with a given name, or of all.
type unsyncedFolders struct {
	fsys.FS
	name string
}

func (u unsyncedFolders) SyncDir(path fsys.Path) error {
	if u.name == "" || filepath.Base(path.String()) == u.name {
		return nil
	}
	return u.FS.SyncDir(path)
}

// lateSync syncs a file only after it has got its name.
type lateSync struct {
	unsyncedFiles
	below fsys.FS
}

func (l lateSync) Link(from, to fsys.Path) error   { return l.late(l.below.Link(from, to), to) }
func (l lateSync) Rename(from, to fsys.Path) error { return l.late(l.below.Rename(from, to), to) }

func (l lateSync) late(err error, path fsys.Path) error {
	if info, statErr := l.below.Lstat(path); err != nil || statErr != nil || info.IsDir() {
		return err
	}
	f, err := l.below.Open(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// lateMark delays writes to a sidecar until the artifact has been replaced.
type lateMark struct {
	fsys.FS
	held []func() error
}

func (l *lateMark) Open(path fsys.Path, flag int, perm fs.FileMode) (fsys.File, error) {
	f, err := l.FS.Open(path, flag, perm)
	if err != nil || !strings.HasSuffix(path.String(), ".fence") || flag&os.O_RDWR == 0 {
		return f, err
	}
	return &heldBack{f, l}, nil
}

func (l *lateMark) Rename(from, to fsys.Path) error {
	err := l.FS.Rename(from, to)
	for _, write := range l.held {
		if err == nil {
			err = write()
		}
	}
	l.held = nil
	return err
}

type heldBack struct {
	fsys.File
	fs *lateMark
}

func (h *heldBack) WriteAt(p []byte, off int64) (int, error) {
	if len(p) != 4096 { // not a slot
		return h.File.WriteAt(p, off)
	}
	slot := []byte(string(p))
	h.fs.held = append(h.fs.held, func() error {
		if _, err := h.File.WriteAt(slot, off); err != nil {
			return err
		}
		return h.File.Sync()
	})
	return len(p), nil
}

func (h *heldBack) Close() error {
	for _, write := range h.fs.held { // a raise replaces no artifact
		if err := write(); err != nil {
			return err
		}
	}
	h.fs.held = nil
	return h.File.Close()
}
