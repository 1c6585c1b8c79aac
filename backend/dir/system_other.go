//go:build !unix

package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"github.com/croft-dev/croft/internal/fsys"
)

func touch(fsys.File) error { return errors.ErrUnsupported }

func device(fs.FileInfo) uint64 { return 0 }

// platform refuses systems whose file systems lack two abilities: unlinking an
// open file, and renaming a folder over an empty one.
func platform() error {
	return fmt.Errorf("a directory cannot be a lease store on %s; use a store with a server instead: %w",
		runtime.GOOS, errors.ErrUnsupported)
}
