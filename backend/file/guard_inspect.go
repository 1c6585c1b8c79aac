package file

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/mount"
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
	case strings.HasSuffix(strings.ToLower(base), guardSuffix+chainSuffix):
		return fmt.Errorf("%w target %s: names that end in %s are those of guards; name the file that it guards",
			fence.ErrInvalid, f.path, guardSuffix+chainSuffix)
	case guardIsStage(base):
		return fmt.Errorf("%w target %s: names like this are those of unfinished writes; choose another",
			fence.ErrInvalid, f.path)
	case len(base)+len(guardSuffix+chainSuffix) > maxName:
		return fmt.Errorf("%w target %s: its name is too long for a guard beside it (%s is appended); "+
			"choose a shorter one", fence.ErrInvalid, f.path, guardSuffix+chainSuffix)
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

// isRemote reports whether a mount's locks may not hold between machines.
func isRemote(m mount.Mount) bool {
	return m.Kind == mount.Network || m.Name == "fuse" || m.Name == "macfuse" || m.Name == "osxfuse"
}
