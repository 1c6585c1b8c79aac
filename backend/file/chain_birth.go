package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
)

// ErrTwoGuards is matched when a sidecar with a mark lies beside a chain of
// versions: nothing is admitted until one of them is gone.
var ErrTwoGuards = errors.New("the file has two guards")

// errNoLink: the file system cannot make hard links, or makes them badly.
var errNoLink = errors.New("its file system has no reliable hard links")

// begin makes a chain, with its first version, unless there is one. It appears
// in one step, so version 1 is always taken.
func (v *visit) begin(ctx context.Context) (*chain, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("guard %s: %w", v.path, err)
	}
	ready := &chain{v, v.newStageName()}
	err := ready.furnish()
	if err == nil {
		// If this fails, somebody was faster; or the answer was lost.
		err = v.fs.Rename(ready.home, v.sidecar+chainSuffix)
	}
	ready.clear()
	c, found := v.chain()
	switch {
	case found != nil:
		return nil, found
	case c != nil:
		return c, v.sync(v.folder)
	case errors.Is(err, errNoLink):
		return nil, err
	}
	return nil, v.failed("beginning its chain of versions", err)
}

// furnish makes a folder that is ready to be a chain, and tries in it whether
// links are as they must be.
func (c *chain) furnish() error {
	mode, _, err := c.modes()
	if err != nil {
		return err
	}
	old, err := c.inspect()
	if err != nil {
		return err
	}
	if err := c.fs.Mkdir(c.home, mode.Perm()); err != nil {
		return err
	}
	// Whatever the umask says, others must get in.
	if err := c.fs.Chmod(c.home, mode); err != nil {
		return err
	}
	if old != nil {
		if err := c.give(old); err != nil {
			return err
		}
	}
	first := chainVersion{}.successor()
	data, err := first.encode()
	if err != nil {
		return err
	}
	file, err := c.makeFile(c.versionPath(1), data)
	if err != nil {
		return err
	}
	_ = file.Close()
	if err := c.tryLink(); err != nil {
		return err
	}
	return c.sync(c.home)
}

// give lets the folder have the artifact's owner and group, as far as the
// system lets us.
func (c *chain) give(old fs.FileInfo) error {
	file, err := c.fs.Open(c.home, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if uid, gid := guardChown(info, old); uid >= 0 || gid >= 0 {
		if err := file.Chown(uid, gid); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// tryLink makes a link, and tries to make it again, which must be refused.
func (c *chain) tryLink() error {
	probe := c.stageName(newNonce())
	defer c.fs.Remove(probe)
	if err := c.fs.Link(c.versionPath(1), probe); err != nil {
		_, missing := c.fs.Lstat(probe) // it may be only the answer that is missing
		switch {
		case missing == nil:
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EMLINK):
			return fmt.Errorf("%w (%w)", errNoLink, err)
		default:
			return err
		}
	}
	if c.fs.Link(c.versionPath(1), probe) == nil {
		return fmt.Errorf("%w (a second link to one name was not refused)", errNoLink)
	}
	return nil
}

// clear removes a folder that has not become the chain, and the files that
// furnish made in it.
func (c *chain) clear() {
	names, err := c.fs.Names(c.home)
	if err != nil {
		return
	}
	for _, name := range names {
		if number, ok := parseVersionName(name); ok && number == 1 || isStaged(name) {
			_ = c.fs.Remove(filepath.Join(c.home, name))
		}
	}
	_ = c.fs.Remove(c.home)
}

// noLink refuses a network mount without links, and says what to use instead.
func (f *File) noLink(err error) error {
	return fmt.Errorf("%w target %s: it lies on a network or FUSE mount, and %w; guard it on a mount whose server "+
		"has hard links (NFS, SSHFS, CephFS), guard it in a database or in object storage, or allow it with "+
		"file://%s?network=allow: a second writer is then noticed, not prevented",
		fence.ErrInvalid, f.path, err, f.path)
}

// settled is the newest version, once the sidecar from before the chain counts
// in it. Version 1 says nothing yet.
func (c *chain) settled(ctx context.Context) (chainVersion, error) {
	for {
		newest, err := c.look(ctx)
		switch {
		case err != nil:
			return newest, err
		case newest.Number == 0:
			return newest, c.failed("looking at its chain of versions", fs.ErrNotExist)
		case newest.Number > 1:
			return newest, c.alone(ctx)
		}
		if taken, err := c.takeOver(ctx, newest); err != nil || !taken {
			return newest, err
		}
	}
}

// takeOver makes the mark of a sidecar the chain's. Guards that use sidecars
// look whether there is a chain after each change, and then the change does not
// count. So a sidecar that is found here holds all that does.
func (c *chain) takeOver(ctx context.Context, first chainVersion) (bool, error) {
	retired := filepath.Join(c.home, retiredName)
	// A link, because link(2) never replaces a file.
	err := c.fs.Link(c.sidecar, retired)
	s, gone := c.retired()
	switch {
	case errors.Is(gone, fs.ErrNotExist) && errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(gone, fs.ErrNotExist):
		return false, c.explain(err)
	case gone != nil:
		return false, gone
	}
	if err := c.fs.Remove(c.sidecar); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, c.explain(err)
	}
	if s.mark.IsZero() {
		return false, nil
	}
	next := first.successor().with(s)
	if s.writes > 0 {
		content, err := c.adopt(ctx)
		if err != nil {
			return false, err
		}
		if content != nil {
			if err := content.aim(&next); err != nil {
				return false, err
			}
		}
	}
	_, err = c.add(ctx, next) // if another was faster, it took over the same
	return err == nil, err
}

// retired is what the sidecar said that the chain has taken over.
func (c *chain) retired() (slotState, error) {
	path := filepath.Join(c.home, retiredName)
	var failed error
	for range lookTries {
		image, err := c.fs.ReadFile(path, slotFile+1)
		if errors.Is(err, fs.ErrNotExist) {
			return slotState{}, err
		}
		if err != nil {
			return slotState{}, c.failed("reading "+path, err)
		}
		s, _, err := slotNewest(image)
		if err == nil {
			return s, nil
		}
		failed = c.damaged(path, "%v", err)
		_ = clock.Sleep(context.Background(), lookPause)
	}
	return slotState{}, failed
}

// alone refuses to go on if a sidecar with a mark lies beside the chain: a
// program that knows nothing of chains writes the file, or a backup brought it.
func (c *chain) alone(ctx context.Context) error {
	if _, err := c.fs.Lstat(c.sidecar); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s, err := c.visit.look(ctx)
	switch {
	case err != nil:
		return err
	case s.mark.IsZero(): // made by a call that then found the chain
		_ = c.fs.Remove(c.sidecar)
		return nil
	}
	return fmt.Errorf("%w: %s has the mark of token %d, and beside it is %s, which counts; stop the program that "+
		"does not know of it, or was a backup restored? Then remove %s",
		ErrTwoGuards, c.sidecar, s.mark.Token, c.home, c.sidecar)
}
