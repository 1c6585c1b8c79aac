//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package file

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/internal/fsys"
)

func guardPlatform() error { return nil }

// guardTryLock takes the exclusive lock on an open file, without waiting. The
// lock belongs to this opening of the file, even within one process.
func guardTryLock(f fsys.File) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

// guardUnlock releases the lock explicitly. Closing the file is not enough
// while a child process that is just being started has the descriptor, too.
func guardUnlock(f fsys.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
}

// guardLinks is how many names a file has.
func guardLinks(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // its type differs between systems
	}
	return 1
}

// guardUser is the number of a file's owner.
func guardUser(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// guardChown returns the owner and the group that a file needs to match old. It
// returns -1 for a value that matches already, and for an owner if this user is
// not root.
func guardChown(info, old fs.FileInfo) (uid, gid int) {
	uid, gid = -1, -1
	have, ok1 := info.Sys().(*syscall.Stat_t)
	want, ok2 := old.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 {
		return uid, gid
	}
	if have.Uid != want.Uid && os.Geteuid() == 0 {
		uid = int(want.Uid)
	}
	if have.Gid != want.Gid {
		gid = int(want.Gid)
	}
	return uid, gid
}
