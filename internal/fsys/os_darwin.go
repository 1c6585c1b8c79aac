package fsys

import "golang.org/x/sys/unix"

// passFlags open a folder only to pass through it.
const passFlags = unix.O_RDONLY | unix.O_DIRECTORY

// openNoLinks opens a path without links. The kernel refuses every link on it.
func openNoLinks(dir int, way string, flag int, perm uint32) (int, error) {
	return openat(dir, way, flag|unix.O_NOFOLLOW_ANY, perm)
}
