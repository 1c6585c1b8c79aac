//go:build unix && !linux

package dir

import (
	"io/fs"
	"syscall"

	"github.com/croft-dev/croft/internal/fsys"
)

// touch sets a file's modification time to its file system's present time, by
// writing the one byte that the file holds.
func touch(f fsys.File) error {
	_, err := f.WriteAt([]byte{'\n'}, 0)
	return err
}

func device(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev) //nolint:unconvert // its type differs between systems
	}
	return 0
}

func platform() error { return nil }
