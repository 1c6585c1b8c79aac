package dir

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
)

// fsClock is the file system's own clock: the modification time that a file
// gets when it is touched. All processes that share the directory share it, on
// several machines, too.
type fsClock struct {
	fake func() time.Time // Options.now, or nil

	// mu keeps the probe open while it is in use. Once it is closed, its
	// descriptor's number may belong to another file.
	mu     sync.RWMutex
	probe  fsys.File
	closed bool
}

// openClock makes the probe file. It also checks with it that links work: the
// file system must refuse a second link to the same name. The probe has no name
// when openClock returns, so it disappears with the process.
func openClock(l *layout, fake func() time.Time) (*fsClock, error) {
	path := l.temp("probe")
	probe, err := l.fs.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, l.fileMode)
	if err != nil {
		return nil, l.explain(err)
	}
	c := &fsClock{probe: probe, fake: fake}
	if err = checkLink(l, path); err == nil {
		_, err = c.real()
		err = l.explain(err)
	}
	if info, statErr := probe.Stat(); err == nil && statErr == nil {
		l.fileDevice = device(info)
	}
	if err != nil {
		_ = probe.Close()
		_ = l.fs.Remove(path)
		return nil, err
	}
	_ = l.fs.Remove(path) // if this fails, a sweep removes it
	return c, nil
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
	defer c.mu.RUnlock()
	if c.closed {
		return time.Time{}, os.ErrClosed
	}
	if err := touch(c.probe); err != nil {
		return time.Time{}, err
	}
	info, err := c.probe.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

func (c *fsClock) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.probe.Close()
}
