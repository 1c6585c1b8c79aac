//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package fsys

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenDir opens a folder as the start of further steps.
func (OS) OpenDir(p Path) (*os.File, error) {
	fd, err := open(p, passFlags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p.full, Err: err}
	}
	return os.NewFile(uintptr(fd), p.full), nil
}

// openFolder opens a folder to list, sync or change it.
func openFolder(p Path) (*os.File, error) {
	fd, err := open(p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p.full, Err: err}
	}
	return os.NewFile(uintptr(fd), p.full), nil
}

// Open opens a file as os.OpenFile does, without waiting for a pipe.
func (OS) Open(p Path, flag int, perm fs.FileMode) (File, error) {
	if flag&os.O_EXCL == 0 {
		flag |= unix.O_NONBLOCK // a pipe may be there
	}
	fd, err := open(p, flag, uint32(perm.Perm()))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p.full, Err: err}
	}
	return os.NewFile(uintptr(fd), p.full), nil
}

// Link is linkat(2).
func (OS) Link(from, to Path) error {
	return both("link", from, to, func(dir int, name string, toDir int, toName string) error {
		return again(func() error { return unix.Linkat(dir, name, toDir, toName, 0) })
	})
}

// Rename is renameat(2), but it replaces no folder, not even an empty one.
func (OS) Rename(from, to Path) error {
	return both("rename", from, to, func(dir int, name string, toDir int, toName string) error {
		var there, st unix.Stat_t
		if unix.Fstatat(toDir, toName, &there, unix.AT_SYMLINK_NOFOLLOW) == nil &&
			there.Mode&unix.S_IFMT == unix.S_IFDIR {
			if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return err // as os.Rename: a missing source comes first
			}
			return unix.EEXIST
		}
		return again(func() error { return unix.Renameat(dir, name, toDir, toName) })
	})
}

// Remove is unlinkat(2) for a file or an empty folder.
func (OS) Remove(p Path) error {
	return one("remove", p, func(dir int, name string) error {
		err := again(func() error { return unix.Unlinkat(dir, name, 0) })
		if err == nil {
			return nil
		}
		rmdir := again(func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
		if rmdir == nil || !errors.Is(rmdir, unix.ENOTDIR) {
			return rmdir
		}
		return err
	})
}

// Mkdir is mkdirat(2).
func (OS) Mkdir(p Path, perm fs.FileMode) error {
	return one("mkdir", p, func(dir int, name string) error {
		return again(func() error { return unix.Mkdirat(dir, name, uint32(perm.Perm())) })
	})
}

// Stat is os.Stat outside of a trusted folder, and Lstat below it.
func (o OS) Stat(p Path) (fs.FileInfo, error) {
	if p.top == "" {
		return os.Stat(p.full)
	}
	return o.Lstat(p)
}

// Lstat is fstatat(2).
func (OS) Lstat(p Path) (fs.FileInfo, error) {
	if p.top == "" {
		return os.Lstat(p.full)
	}
	i := &info{name: path.Base(p.full)}
	err := one("lstat", p, func(dir int, name string) error {
		return again(func() error { return unix.Fstatat(dir, name, &i.st, unix.AT_SYMLINK_NOFOLLOW) })
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}

// Writable is faccessat(2) with this process's effective user.
func (OS) Writable(p Path) error {
	return one("write", p, func(dir int, name string) error {
		return again(func() error { return unix.Faccessat(dir, name, unix.W_OK, unix.AT_EACCESS) })
	})
}

// ReadFile reads a regular file of at most limit bytes.
func (OS) ReadFile(p Path, limit int) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, &fs.PathError{Op: "read", Path: p.full, Err: err} }
	fd, err := open(p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p.full, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return fail(err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fail(ErrNotRegular)
	case st.Size > int64(limit):
		return fail(ErrTooLarge)
	}
	// One more byte, to find the end without growing.
	data := make([]byte, 0, st.Size+1)
	for {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fail(err)
		case n == 0:
			return data, nil
		}
		if data = data[:len(data)+n]; len(data) > limit {
			return fail(ErrTooLarge)
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// one takes a step in the folder that contains the path's last element.
func one(op string, p Path, step func(dir int, name string) error) error {
	dir, name, done, err := p.parent()
	if err == nil {
		err = step(dir, name)
		done()
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: p.full, Err: err}
	}
	return nil
}

// both takes a step on two names.
func both(op string, from, to Path, step func(dir int, name string, toDir int, toName string) error) error {
	fail := func(err error) error { return &os.LinkError{Op: op, Old: from.full, New: to.full, Err: err} }
	dir, name, done, err := from.parent()
	if err != nil {
		return fail(err)
	}
	defer done()
	toDir, toName, toDone, err := to.parent()
	if err != nil {
		return fail(err)
	}
	defer toDone()
	if err := step(dir, name, toDir, toName); err != nil {
		return fail(err)
	}
	return nil
}

// parent opens the folder that contains the path's last element.
func (p Path) parent() (dir int, name string, done func(), err error) {
	if p.top == "" {
		return unix.AT_FDCWD, p.full, func() {}, nil
	}
	way, name := path.Split(p.below())
	if way == "" && p.dir != nil {
		return int(p.dir.Fd()), name, func() {}, nil
	}
	folder := p
	folder.full = path.Join(p.top, way)
	if dir, err = open(folder, passFlags, 0); err != nil {
		return 0, "", nil, err
	}
	return dir, name, func() { _ = unix.Close(dir) }, nil
}

// open opens a path. It follows links on the way to the trusted folder, as any
// program does, and none below it.
func open(p Path, flag int, perm uint32) (fd int, err error) {
	switch {
	case p.top == "":
		return openat(unix.AT_FDCWD, p.full, flag, perm)
	case p.dir != nil:
		return beneath(int(p.dir.Fd()), p.below(), flag, perm)
	}
	fd, err = noLinks(unix.AT_FDCWD, p.full, flag, perm)
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	// There is a link on the way to the trusted folder, or below it.
	top, err := openat(unix.AT_FDCWD, p.top, passFlags, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(top)
	return beneath(top, p.below(), flag, perm)
}

// noLinks is openNoLinks. A test replaces it to simulate a system without it.
var noLinks = openNoLinks

func openat(dir int, name string, flag int, perm uint32) (fd int, err error) {
	err = again(func() error { fd, err = unix.Openat(dir, name, flag|unix.O_CLOEXEC, perm); return err })
	return fd, err
}

// beneath opens a path below a folder without following a link. A link is the
// error ELOOP.
func beneath(top int, way string, flag int, perm uint32) (int, error) {
	fd, err := noLinks(top, way, flag, perm)
	if errors.Is(err, unix.ENOSYS) {
		return walk(top, way, flag, perm)
	}
	return fd, err
}

// walk does the same as beneath, one element after the other.
func walk(top int, way string, flag int, perm uint32) (int, error) {
	dir := top
	for {
		name, rest, more := strings.Cut(way, "/")
		flags := flag
		if more {
			flags = passFlags
		}
		next, err := openat(dir, name, flags|unix.O_NOFOLLOW, perm)
		if err != nil && !errors.Is(err, unix.EEXIST) && isLink(dir, name) {
			err = unix.ELOOP // systems differ: ENOTDIR, EMLINK, EFTYPE
		}
		if dir != top {
			_ = unix.Close(dir)
		}
		if err != nil || !more {
			return next, err
		}
		dir, way = next, rest
	}
}

func isLink(dir int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// again repeats a system call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
