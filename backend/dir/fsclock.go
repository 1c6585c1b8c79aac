package dir

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
)

// fsClock is the file system's own clock: the modification time that a file gets when it is touched now. All who share the directory share it, also
// from several machines.
type fsClock struct {
	fake func() time.Time

	mu     sync.RWMutex // nobody may touch the descriptor's number once it is closed: it may be another file's
	probe  fsys.File
	closed bool
}

// openClock makes the probe and, with it, finds out whether links work: a second link to the same name must be refused. The probe has no name
// when openClock returns: it goes away with the process.
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
	_ = l.fs.Remove(path) // what cannot be removed now, a sweep removes
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

// real is the file system's clock, whatever clock the store goes by.
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
