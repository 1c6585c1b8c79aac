package dir

import (
	"fmt"
	"io/fs"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/internal/fsys"
)

// touch sets a file's modification time to its file system's present time, by
// futimens(2). Over NFS it is the server's time.
func touch(f fsys.File) error {
	now := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, f.Fd(), 0, uintptr(unsafe.Pointer(&now[0])), 0, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("reading the file system's clock: %w", errno)
		}
	}
}

func device(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev) //nolint:unconvert // its type differs between architectures
	}
	return 0
}

func platform() error { return nil }
