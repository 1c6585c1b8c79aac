package fsys

import (
	"errors"

	"golang.org/x/sys/unix"
)

// passFlags open a folder to pass through it, which takes no right to list it.
const passFlags = unix.O_PATH | unix.O_DIRECTORY

// openNoLinks opens a path on which no link is; the kernel refuses every link.
// ENOSYS: the kernel cannot.
func openNoLinks(dir int, way string, flag int, perm uint32) (fd int, err error) {
	how := &unix.OpenHow{Flags: uint64(flag | unix.O_CLOEXEC), Resolve: unix.RESOLVE_NO_SYMLINKS}
	if flag&unix.O_PATH == 0 {
		how.Flags |= unix.O_LARGEFILE // openat2 refuses the two together; 0 on 64-bit systems
	}
	if flag&unix.O_CREAT != 0 {
		how.Mode = uint64(perm)
	}
	err = again(func() error { fd, err = unix.Openat2(dir, way, how); return err })
	if errors.Is(err, unix.EPERM) { // perhaps of a container that forbids the call
		err = unix.ENOSYS // also the answer before Linux 5.6
	}
	return fd, err
}
