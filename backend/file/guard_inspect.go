package file

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/ground"
)

// maxName is the longest file name on common file systems.
const maxName = 255

// checkName refuses names that the guard itself uses.
func (f *File) checkName() error {
	base := filepath.Base(f.path)
	switch {
	case strings.HasSuffix(strings.ToLower(base), guardSuffix): // macOS ignores case
		return fmt.Errorf("%w target %s: names that end in %s are those of sidecars; name the file that it guards",
			fence.ErrInvalid, f.path, guardSuffix)
	case guardIsStage(base):
		return fmt.Errorf("%w target %s: names like this are those of unfinished writes; choose another",
			fence.ErrInvalid, f.path)
	case len(base)+len(guardSuffix) > maxName:
		return fmt.Errorf("%w target %s: its name is too long for a sidecar beside it (%s is appended); "+
			"choose a shorter one", fence.ErrInvalid, f.path, guardSuffix)
	}
	return nil
}

// inspect looks at the artifact. It returns nil if the artifact does not exist,
// and an error if it cannot be guarded.
func (v *visit) inspect() (fs.FileInfo, error) {
	info, err := v.fs.Lstat(v.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("guard %s: %w", v.path, err)
	}
	refuse := func(why string) (fs.FileInfo, error) {
		return nil, fmt.Errorf("%w target %s: %s", fence.ErrInvalid, v.path, why)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return refuse("it is a directory; name a file in it")
	case mode&fs.ModeSymlink != 0:
		return refuse("it has become a symbolic link since it was opened; open it again")
	case mode&fs.ModeNamedPipe != 0:
		return refuse("it is a pipe: what went through it cannot be fenced")
	case mode&fs.ModeSocket != 0:
		return refuse("it is a socket: what went through it cannot be fenced")
	case !mode.IsRegular():
		return refuse("it is a device: what went to it cannot be fenced")
	}
	if n := guardLinks(info); n > 1 {
		return refuse(fmt.Sprintf("it has %d hard links, and only this name would get new content; "+
			"make it a file of its own: cp -p FILE TMP && mv TMP FILE", n))
	}
	return info, nil
}

// admitMount refuses file systems whose locks may not hold between machines,
// unless Options.AllowNetwork is set.
func (f *File) admitMount(m ground.Mount) error {
	if m.Kind != ground.Network && m.Name != "fuse" && m.Name != "macfuse" && m.Name != "osxfuse" {
		return nil
	}
	if !f.options.AllowNetwork {
		return fmt.Errorf("%w target %s: it lies on a network or FUSE mount (%s), "+
			"where locks may not hold between machines; guard it where the disk is, "+
			"or allow it with file://%s?network=allow: a second writer is then noticed, not prevented",
			fence.ErrInvalid, f.path, m.Name, f.path)
	}
	f.remote = true
	return nil
}
