package fsys

import "golang.org/x/sys/unix"

// passFlags open a folder to pass through it.
const passFlags = unix.O_RDONLY | unix.O_DIRECTORY

// openNoLinks opens a path on which no link is; the kernel refuses every link.
func openNoLinks(dir int, way string, flag int, perm uint32) (int, error) {
	return openat(dir, way, flag|unix.O_NOFOLLOW_ANY, perm)
}
