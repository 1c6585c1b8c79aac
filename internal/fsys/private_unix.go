//go:build unix

package fsys

import (
	"io/fs"
	"os"
	"syscall"
)

// Private reports whether nobody but this user can write to a file or folder.
// Root is not counted.
func Private(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}
