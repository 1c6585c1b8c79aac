package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
)

// visit is one call's access to the artifact's folder. The folder may lie where
// another user can move it away and put something else in its place, a link for
// example, while root writes. So a call opens the folder once, following no
// link, and takes every step in this very folder.
type visit struct {
	*File
	fs fsys.Tree // hides File.fs, which follows the path wherever it leads
}

func (f *File) visit() (*visit, error) {
	held, err := fsys.Hold(f.fs, f.folder)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%w target %s: a symbolic link is on its path that was not there when it was opened; "+
			"see who put it there, and open it again", fence.ErrInvalid, f.path)
	}
	if err != nil {
		return nil, fmt.Errorf("guard %s: %w", f.path, err)
	}
	return &visit{f, held}, nil
}

func (v *visit) leave() { _ = v.fs.Close() }

// chainFor is the chain that a change goes to; nil: to the sidecar. On a
// network mount it begins one. Every guard uses a chain once it is there, also
// on the server's own disk.
func (v *visit) chainFor(ctx context.Context) (*chain, error) {
	c, err := v.chain()
	if err != nil || c != nil || !v.remote {
		return c, err
	}
	c, err = v.begin(ctx)
	if errors.Is(err, errNoLink) {
		if v.options.AllowNetwork {
			return nil, nil
		}
		return nil, v.noLink(err)
	}
	return c, err
}

// unchained refuses to go on with the sidecar once there is a chain.
func (v *visit) unchained(advice string) error {
	switch _, err := v.fs.Lstat(v.sidecar + chainSuffix); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return v.explain(err)
	}
	return fmt.Errorf("guard %s: another machine has begun to write it over a network mount, "+
		"and its mark has moved to %s; %s",
		v.path, v.sidecar+chainSuffix, advice)
}

// checkFolder refuses to go on if the folder is no longer at its path: nobody
// would find the new content there.
func (v *visit) checkFolder() error {
	moved, err := v.fs.Moved()
	switch {
	case err != nil:
		return fmt.Errorf("guard %s: %w; nothing was written", v.path, err)
	case moved:
		return fmt.Errorf("guard %s: its directory was replaced meanwhile; nothing was written: write again", v.path)
	}
	return nil
}
