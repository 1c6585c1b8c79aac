package dir

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
)

// visit is one call's stay in the artifact's folder. The folder may lie where
// another user can move it away and put something else in its place, a link
// for example, while root writes. So a call opens the folder once, following
// no link, and takes every step in this very folder.
type visit struct {
	*File
	fs fsys.Tree // not File.fs, which leads wherever the path leads
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

// stay refuses to go on in a folder that is no longer where its path leads:
// nobody would find there what is written.
func (v *visit) stay() error {
	moved, err := v.fs.Moved()
	switch {
	case err != nil:
		return fmt.Errorf("guard %s: %w; nothing was written", v.path, err)
	case moved:
		return fmt.Errorf("guard %s: its directory was replaced meanwhile; nothing was written: write again", v.path)
	}
	return nil
}
