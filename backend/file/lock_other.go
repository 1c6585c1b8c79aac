//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"github.com/croft-dev/croft/internal/fsys"
)

// guardPlatform refuses systems without flock(2). No other lock both keeps two
// writers apart and ends when its process dies.
func guardPlatform() error {
	return fmt.Errorf("files cannot be guarded on %s; "+
		"guard the result in a database or an object store instead: %w", runtime.GOOS, errors.ErrUnsupported)
}

func guardTryLock(fsys.File) (bool, error) { return false, guardPlatform() }

func guardUnlock(fsys.File) {}

func guardLinks(fs.FileInfo) uint64 { return 1 }

func guardUser(fs.FileInfo) int { return -1 }

func guardChown(_, _ fs.FileInfo) (uid, gid int) { return -1, -1 }

func guardLocker(fs.FileInfo) int { return 0 }
