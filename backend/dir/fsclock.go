package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
)

// fsClock is the file system's own clock: the modification time that a file
// gets when it is touched. All processes that share the directory share it, on
// several machines, too.
type fsClock struct {
	layout *layout
	fake   func() time.Time // Options.now, or nil

	// mu keeps the probe open while it is in use. Once it is closed, its
	// descriptor's number may belong to another file.
	mu     sync.RWMutex
	probe  fsys.File // nil while the directory cannot be written
	closed bool
}

// openClock makes the probe file. If the directory cannot be written, the store
// can still be read: the clock then has no probe yet, and tries again when it
// is asked for the time.
func openClock(l *layout, fake func() time.Time) (*fsClock, error) {
	c := &fsClock{layout: l, fake: fake}
	if err := c.makeProbe(); err != nil && !unwritable(err) {
		return nil, err
	}
	var file fs.FileInfo
	var err error
	if c.probe != nil {
		file, err = c.probe.Stat()
	} else {
		file, err = l.fs.Lstat(filepath.Join(l.root, markerName))
	}
	if err != nil {
		return nil, l.explain(err)
	}
	l.fileDevice = device(file)
	return c, nil
}

// makeProbe makes the probe file. It also checks with it that links work: the
// file system must refuse a second link to the same name. The probe has no name
// when makeProbe returns, so it disappears with the process. The caller holds
// mu, or is alone.
func (c *fsClock) makeProbe() error {
	l, path := c.layout, c.layout.temp("probe")
	probe, err := l.fs.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, l.fileMode)
	if err != nil {
		return l.explain(err)
	}
	defer l.fs.Remove(path) // if this fails, a sweep removes it
	if err = checkLink(l, path); err == nil {
		_, err = timeOf(probe)
		err = l.explain(err)
	}
	if err != nil {
		_ = probe.Close()
		return err
	}
	c.probe = probe
	return nil
}

// unwritable reports whether an error says that nothing can be written: the
// file system is full or read-only, or this user has no permission.
func unwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func checkLink(l *layout, path string) error {
	second := path + "-link"
	defer l.fs.Remove(second)
	if err := l.fs.Link(path, second); err != nil {
		return l.noLink(err)
	}
	if err := l.fs.Link(path, second); !errors.Is(err, os.ErrExist) {
		return l.noLink(err)
	}
	return nil
}

func (c *fsClock) now() (time.Time, error) {
	if c.fake != nil {
		return c.fake(), nil
	}
	return c.real()
}

// real reads the file system's clock, even if Options.now replaces it.
func (c *fsClock) real() (time.Time, error) {
	c.mu.RLock()
	if c.probe == nil {
		c.mu.RUnlock()
		if err := c.probeAgain(); err != nil {
			return time.Time{}, err
		}
		c.mu.RLock()
	}
	defer c.mu.RUnlock()
	if c.closed {
		return time.Time{}, c.layout.explain(os.ErrClosed)
	}
	now, err := timeOf(c.probe)
	return now, c.layout.explain(err)
}

// probeAgain makes the probe that could not be made before.
func (c *fsClock) probeAgain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.layout.explain(os.ErrClosed)
	case c.probe != nil:
		return nil
	}
	return c.makeProbe()
}

// timeOf touches a file and returns its new modification time.
func timeOf(f fsys.File) (time.Time, error) {
	if err := touch(f); err != nil {
		return time.Time{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

func (c *fsClock) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.probe == nil {
		return nil
	}
	return c.probe.Close()
}
