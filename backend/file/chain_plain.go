package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/croft-dev/croft/internal/fsys"
)

// The artifact beside a chain is a copy of the committed content, for readers
// who know nothing of guards. It is refreshed after a commit. A process that
// stands still between its last look at the chain and its rename can put an
// older copy there afterwards. If it lives on, it looks again and repairs that
// itself. If it does not, the next call on this guard does.

// refreshTries bounds how often a copy is made anew because the content has
// changed meanwhile. Those who changed it make copies as well.
const refreshTries = 8

// plainMemory is the last copy that was compared with the committed content.
type plainMemory struct {
	info fs.FileInfo
	sum  string
}

// repair refreshes the artifact if it differs from the commit. It is a
// courtesy: it says nothing if it fails, for the caller may only read there.
func (c *chain) repair(ctx context.Context) {
	if c.omit.repair {
		return
	}
	if newest, err := c.look(ctx); err == nil {
		_ = c.refresh(ctx, newest)
	}
}

// refresh makes the artifact a copy of the newest committed content. It need
// not succeed if newer content was committed meanwhile: its writer refreshes
// the artifact, too.
func (c *chain) refresh(ctx context.Context, newest chainVersion) error {
	if newest.Content == nil {
		return nil
	}
	mine := newest.Content.Name
	var failed error
	for range refreshTries {
		if newest.Content == nil || c.isPlain(newest) {
			return nil
		}
		failed = c.install(ctx, newest)
		if failed != nil && !vanished(failed) {
			return failed
		}
		now, err := c.look(ctx)
		if err != nil || failed == nil && now.Number == newest.Number {
			return err
		}
		newest = now
	}
	// The last answer may have been lost.
	if newest.Content == nil || newest.Content.Name != mine || c.isPlain(newest) {
		return nil
	}
	return failed
}

// vanished reports whether a file was not there because another process has
// just replaced or removed it. SSHFS moves a file that is open out of the way
// before it renames another one over it.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE)
}

// install copies the committed content beside the artifact, and renames it.
func (c *chain) install(ctx context.Context, newest chainVersion) error {
	from, err := c.open(newest)
	if err != nil {
		return err
	}
	defer from.Close()
	old, err := c.inspect()
	if err != nil {
		return err
	}
	if old == nil { // as the writer of the content has made it
		if old, err = c.fs.Lstat(filepath.Join(c.home, newest.Content.Name)); err != nil {
			return err
		}
	}
	s, err := c.stageAt(c.newStageName(), old)
	if err != nil {
		return err
	}
	if _, err := guardCopy(ctx, s.file, from); err != nil {
		return s.drop(c.failed("copying the committed content", err))
	}
	if err := s.sync(); err != nil {
		return s.drop(err)
	}
	info, err := s.file.Stat()
	if err != nil {
		return s.drop(err)
	}
	// The later the last look, the less an older copy can do.
	now, err := c.look(ctx)
	if err != nil || now.Content == nil || now.Content.Name != newest.Content.Name {
		return s.drop(err)
	}
	if err := s.install(); err != nil {
		return s.drop(c.failed("refreshing the file", err))
	}
	c.sawPlain(info, newest.Content.SHA256)
	if err := c.sync(c.folder); err != nil {
		return s.drop(c.failed("syncing its directory", err))
	}
	return s.drop(nil)
}

// isPlain reports whether the artifact is a copy of the committed content.
func (c *chain) isPlain(newest chainVersion) bool {
	info, err := c.fs.Lstat(c.path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != newest.Content.Size {
		return false
	}
	if c.hasSeen(info, newest.Content.SHA256) {
		return true
	}
	file, err := c.fs.Open(c.path, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	sum := sha256.New()
	if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, newest.Content.Size)); err != nil {
		return false
	}
	if hex.EncodeToString(sum.Sum(nil)) != newest.Content.SHA256 {
		return false
	}
	c.sawPlain(info, newest.Content.SHA256)
	return true
}

func (c *chain) sawPlain(info fs.FileInfo, sum string) {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	c.memory.plain = plainMemory{info, sum}
}

// hasSeen reports whether this very file was compared already. Where times are
// whole seconds, two files may look alike: then it is compared again.
func (c *chain) hasSeen(info fs.FileInfo, sum string) bool {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	seen := c.memory.plain
	return seen.info != nil && seen.sum == sum && info.ModTime().Nanosecond() != 0 &&
		info.ModTime().Equal(seen.info.ModTime()) && fsys.SameFile(info, seen.info)
}
