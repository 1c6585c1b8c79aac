//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package fsys

import (
	"io/fs"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// info is a file's description by fstatat(2).
type info struct {
	name string
	st   unix.Stat_t
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.st.Size }
func (i *info) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i *info) IsDir() bool        { return i.Mode().IsDir() }

// Sys returns a *syscall.Stat_t, like package os does. Both packages use the
// kernel's own struct.
func (i *info) Sys() any { return (*syscall.Stat_t)(unsafe.Pointer(&i.st)) }

func (i *info) Mode() fs.FileMode {
	st := uint32(i.st.Mode) //nolint:unconvert // its type differs between systems
	mode := fs.FileMode(st & 0o777)
	switch st & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	default:
		mode |= fs.ModeIrregular
	}
	if st&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if st&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if st&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// SameFile reports whether two descriptions are of the same file.
func SameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return false
	}
	one, ok := a.Sys().(*syscall.Stat_t)
	other, ok2 := b.Sys().(*syscall.Stat_t)
	return ok && ok2 && one.Dev == other.Dev && one.Ino == other.Ino
}
