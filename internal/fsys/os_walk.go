//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package fsys

import "golang.org/x/sys/unix"

// passFlags open a folder to pass through it.
const passFlags = unix.O_RDONLY | unix.O_DIRECTORY

// beneath opens what lies beneath a folder without following a link.
func beneath(top int, way string, flag int, perm uint32) (int, error) {
	return walk(top, way, flag, perm)
}
