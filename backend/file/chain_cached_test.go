//go:build linux || darwin

package file

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// cached is a file system as one client of a network file system sees it. Each
// step takes its time, so steps of several clients come in any order. Answers
// to link and rename are lost now and then. Its cache of a folder may be old
// until it changes the folder itself:
//
//   - As SSHFS: a listing may be old, and a file that is opened is asked for.
//   - As NFS: a name that was free may seem free for long, but opening the
//     folder to list it asks the server.
//
// Of an existing file, size and times may be old.
type cached struct {
	fsys.OS
	asNFS bool

	mu    sync.Mutex
	lists map[string][]string
	free  map[string]map[string]bool // by folder: names that were free
	infos map[string]fs.FileInfo
}

func newCached(asNFS bool) *cached {
	c := &cached{asNFS: asNFS}
	c.forget("")
	return c
}

// forget empties the cache of a folder, or of all folders.
func (c *cached) forget(folder string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if folder == "" {
		c.lists, c.free, c.infos = map[string][]string{}, map[string]map[string]bool{}, map[string]fs.FileInfo{}
		return
	}
	delete(c.lists, folder)
	delete(c.free, folder)
}

// delay lets other clients go first.
func (c *cached) delay() {
	if rand.IntN(8) == 0 {
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
}

// lost reports whether an answer is lost.
func (c *cached) lost() bool { return rand.IntN(4) == 0 }

// changed takes a step that changes folders.
func (c *cached) changed(step func() error, paths ...fsys.Path) error {
	c.delay()
	err := step()
	c.delay()
	for _, p := range paths {
		c.forget(filepath.Dir(p.String()))
		c.mu.Lock()
		delete(c.infos, p.String())
		c.mu.Unlock()
	}
	return err
}

func (c *cached) Link(from, to fsys.Path) error {
	err := c.changed(func() error { return c.OS.Link(from, to) }, to)
	if err == nil && c.lost() {
		return &os.LinkError{Op: "link", New: to.String(), Err: fs.ErrExist}
	}
	return err
}

func (c *cached) Rename(from, to fsys.Path) error {
	err := c.changed(func() error { return c.OS.Rename(from, to) }, from, to)
	if err == nil && c.lost() {
		return &os.LinkError{Op: "rename", New: to.String(), Err: fs.ErrNotExist}
	}
	return err
}

func (c *cached) Remove(p fsys.Path) error {
	return c.changed(func() error { return c.OS.Remove(p) }, p)
}

func (c *cached) Mkdir(p fsys.Path, perm fs.FileMode) error {
	return c.changed(func() error { return c.OS.Mkdir(p, perm) }, p)
}

func (c *cached) Open(p fsys.Path, flag int, perm fs.FileMode) (file fsys.File, err error) {
	if flag&os.O_CREATE == 0 {
		c.delay()
		return c.OS.Open(p, flag, perm)
	}
	err = c.changed(func() error { file, err = c.OS.Open(p, flag, perm); return err }, p)
	return file, err
}

func (c *cached) Names(p fsys.Path) ([]string, error) {
	c.delay()
	folder := p.String()
	if c.asNFS {
		c.forget(folder)
		return c.OS.Names(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if names, ok := c.lists[folder]; ok && rand.IntN(20) != 0 {
		return names, nil
	}
	names, err := c.OS.Names(p)
	if err == nil {
		c.lists[folder] = names
	}
	return names, err
}

func (c *cached) ReadFile(p fsys.Path, limit int) ([]byte, error) {
	c.delay()
	folder, name := filepath.Split(p.String())
	folder = filepath.Clean(folder)
	c.mu.Lock()
	free := c.asNFS && c.free[folder][name]
	c.mu.Unlock()
	if free {
		return nil, &fs.PathError{Op: "open", Path: p.String(), Err: fs.ErrNotExist}
	}
	data, err := c.OS.ReadFile(p, limit)
	if os.IsNotExist(err) {
		c.mu.Lock()
		if c.free[folder] == nil {
			c.free[folder] = map[string]bool{}
		}
		c.free[folder][name] = true
		c.mu.Unlock()
	}
	return data, err
}

func (c *cached) Lstat(p fsys.Path) (fs.FileInfo, error) {
	c.delay()
	c.mu.Lock()
	defer c.mu.Unlock()
	if info := c.infos[p.String()]; info != nil && rand.IntN(4) != 0 {
		return info, nil
	}
	info, err := c.OS.Lstat(p)
	if err == nil && info.Mode().IsRegular() {
		c.infos[p.String()] = info
	}
	return info, err
}

func TestChainConformanceBehindCaches(t *testing.T) {
	for name, asNFS := range map[string]bool{"as NFS": true, "as SSHFS": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guardtest.Run(t, guardtest.Harness{Make: func(t testing.TB) guardtest.Resource {
				path := filepath.Join(testenv.Memory(t), "artifact")
				return chainResource(func(testing.TB, int) *File { return chainOpen(t, newCached(asNFS), path) })
			}})
		})
	}
}
