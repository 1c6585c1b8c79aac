package fsys

import (
	"errors"

	"golang.org/x/sys/unix"
)

// passFlags open a folder to pass through it, which takes no right to list it.
const passFlags = unix.O_PATH | unix.O_DIRECTORY

// beneath opens what lies beneath a folder. The kernel refuses every link.
func beneath(top int, way string, flag int, perm uint32) (fd int, err error) {
	how := &unix.OpenHow{
		Flags:   uint64(flag | unix.O_CLOEXEC | unix.O_LARGEFILE),
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	}
	if flag&unix.O_CREAT != 0 {
		how.Mode = uint64(perm)
	}
	err = again(func() error { fd, err = unix.Openat2(top, way, how); return err })
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.6, or a container that forbids it
		return walk(top, way, flag, perm)
	}
	return fd, err
}
