package file

import (
	"errors"
	"fmt"
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
