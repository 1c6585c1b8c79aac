//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package fsys

import (
	"io"
	"io/fs"
	"os"
)

// These systems use plain paths and follow links everywhere. They are Windows,
// which has neither directory stores nor guarded files, and Solaris and AIX,
// for which golang.org/x/sys has no linkat(2).

// OpenDir opens a folder.
func (OS) OpenDir(p Path) (*os.File, error) { return os.Open(p.full) }

func openFolder(p Path) (*os.File, error) { return os.Open(p.full) }

// Open is os.OpenFile.
func (OS) Open(p Path, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(p.full, flag, perm)
	if err != nil {
		// Do not return f: a nil *os.File in a File is not nil.
		return nil, err
	}
	return f, nil
}

// Link is os.Link.
func (OS) Link(from, to Path) error { return os.Link(from.full, to.full) }

// Rename is os.Rename.
func (OS) Rename(from, to Path) error { return os.Rename(from.full, to.full) }

// Remove is os.Remove.
func (OS) Remove(p Path) error { return os.Remove(p.full) }

// Mkdir is os.Mkdir.
func (OS) Mkdir(p Path, perm fs.FileMode) error { return os.Mkdir(p.full, perm) }

// Stat is os.Stat.
func (OS) Stat(p Path) (fs.FileInfo, error) { return os.Stat(p.full) }

// Lstat is os.Lstat.
func (OS) Lstat(p Path) (fs.FileInfo, error) { return os.Lstat(p.full) }

// Writable opens the file to find out.
func (OS) Writable(p Path) error {
	f, err := os.OpenFile(p.full, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// ReadFile reads a regular file of at most limit bytes.
func (OS) ReadFile(p Path, limit int) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, &fs.PathError{Op: "read", Path: p.full, Err: err} }
	f, err := os.Open(p.full)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return fail(ErrNotRegular)
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		return fail(ErrTooLarge)
	}
	return data, err
}

// SameFile is os.SameFile.
func SameFile(a, b fs.FileInfo) bool { return os.SameFile(a, b) }
