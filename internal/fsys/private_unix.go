//go:build unix

package fsys

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Private reports whether only this user and root can change a file or folder,
// or put another one in its place. They must own it and every folder above it,
// and nobody else may write there. From the second folder above on, a sticky
// folder like /tmp is allowed, where everybody may create files but remove only
// their own.
func Private(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil || !filepath.IsAbs(path) {
		return false
	}
	for step := 0; ; step++ {
		info, err := os.Lstat(path)
		if err != nil {
			return false
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok || owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
			return false
		}
		if info.Mode().Perm()&0o022 != 0 && (step < 2 || info.Mode()&fs.ModeSticky == 0) {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}
