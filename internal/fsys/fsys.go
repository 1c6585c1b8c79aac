// Package fsys is the file system as the directory store and the file guard use
// it: single steps that can fail, one by one. The real one is [OS]. Tests wrap
// it in [Faulty].
//
// Other users may share the folders that Croft works in. So a step names its
// file by a [Path]: a trusted folder, and the path below it. Links on the way
// to the trusted folder are followed, as by any program. Below it, no link is
// ever followed, not even a link made at that moment. A [Tree] makes such
// paths.
package fsys

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// FS is a file system. Every method is one step: it happens or it does not.
type FS interface {
	// OpenDir opens a folder as the start of further steps: see [Hold].
	OpenDir(path Path) (*os.File, error)
	// Open opens a file as os.OpenFile does. It never waits for a pipe.
	Open(path Path, flag int, perm fs.FileMode) (File, error)
	Link(from, to Path) error
	// Rename is like os.Rename: it replaces a file, but never a folder.
	Rename(from, to Path) error
	Remove(path Path) error
	Mkdir(path Path, perm fs.FileMode) error
	// Chmod changes a folder, but nothing that has taken its place.
	Chmod(path Path, mode fs.FileMode) error
	Stat(path Path) (fs.FileInfo, error)
	Lstat(path Path) (fs.FileInfo, error)
	// Writable returns nil if this user may write to a file.
	Writable(path Path) error
	// ReadFile reads a regular file of at most limit bytes. Otherwise the error
	// matches ErrNotRegular or ErrTooLarge.
	ReadFile(path Path, limit int) ([]byte, error)
	// Names lists a folder, unsorted, in one pass if the system allows.
	Names(path Path) ([]string, error)
	// SyncDir makes the entries of a folder durable.
	SyncDir(path Path) error
}

// File is an open file.
type File interface {
	io.Writer
	io.WriterAt
	io.ReaderAt
	Sync() error
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
	// Fd returns the descriptor, for locks and clock probes.
	Fd() uintptr
	Close() error
}

// Errors of [FS.ReadFile].
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("larger than any file that belongs here")
)

// OS is the operating system's own file system.
type OS struct{}

// Names lists a folder.
func (OS) Names(path Path) ([]string, error) {
	d, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	if closed := d.Close(); err == nil {
		err = closed
	}
	return names, err
}

// SyncDir makes the entries of a folder durable.
func (OS) SyncDir(path Path) error {
	d, err := openFolder(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}

// Chmod changes a folder through a handle. If a file or a link has taken the
// folder's place, opening it as a folder fails.
func (OS) Chmod(path Path, mode fs.FileMode) error {
	d, err := openFolder(path)
	if err != nil {
		return err
	}
	err = d.Chmod(mode)
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}
