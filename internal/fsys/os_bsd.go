//go:build freebsd || netbsd || openbsd || dragonfly

package fsys

import "golang.org/x/sys/unix"

// passFlags open a folder only to pass through it.
const passFlags = unix.O_RDONLY | unix.O_DIRECTORY

// openNoLinks is not supported here.
func openNoLinks(int, string, int, uint32) (int, error) { return -1, unix.ENOSYS }
