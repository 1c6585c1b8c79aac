package fsys

import (
	"errors"

	"golang.org/x/sys/unix"
)

// passFlags open a folder only to pass through it. That needs no right to list
// it.
const passFlags = unix.O_PATH | unix.O_DIRECTORY

// openNoLinks opens a path without links. The kernel refuses every link on it.
// The error is ENOSYS if the kernel lacks openat2.
func openNoLinks(dir int, way string, flag int, perm uint32) (fd int, err error) {
	how := &unix.OpenHow{Flags: uint64(flag | unix.O_CLOEXEC), Resolve: unix.RESOLVE_NO_SYMLINKS}
	if flag&unix.O_PATH == 0 {
		// openat2 refuses it together with O_PATH. It is 0 on 64-bit systems.
		how.Flags |= unix.O_LARGEFILE
	}
	if flag&unix.O_CREAT != 0 {
		how.Mode = uint64(perm)
	}
	err = again(func() error { fd, err = unix.Openat2(dir, way, how); return err })
	if errors.Is(err, unix.EPERM) { // perhaps a container forbids the call
		err = unix.ENOSYS // also the answer before Linux 5.6
	}
	return fd, err
}
