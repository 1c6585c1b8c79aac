//go:build unix

package fsys

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Private reports whether only this user and root can change a file or folder,
// or put another one in its place: they own it and every folder above it, and
// nobody else may write there. A folder in which everybody may make files, and
// remove only their own, as /tmp, may be above, but not next above.
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
