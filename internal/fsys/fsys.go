// Package fsys is the file system as the directory store and the file guard use it: single steps that can fail, one by one. The real one is [OS]; tests wrap
// it in [Faulty].
package fsys

import (
	"io"
	"io/fs"
	"os"
)

// FS is a file system. Every method is one step: it happens or it does not.
type FS interface {
	// Open opens a file as os.OpenFile does.
	Open(path string, flag int, perm fs.FileMode) (File, error)
	Link(from, to string) error
	Rename(from, to string) error
	Remove(path string) error
	Mkdir(path string, perm fs.FileMode) error
	Chmod(path string, mode fs.FileMode) error
	Chown(path string, uid, gid int) error
	Stat(path string) (fs.FileInfo, error)
	Lstat(path string) (fs.FileInfo, error)
	ReadFile(path string) ([]byte, error)
	// Names lists a folder, unsorted, in one reading as far as the system allows.
	Names(path string) ([]string, error)
	// SyncDir makes the entries of a folder durable.
	SyncDir(path string) error
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
	// Fd is the descriptor, for locks and clock probes.
	Fd() uintptr
	Close() error
}

// OS is the operating system's own file system.
type OS struct{}

// Open opens a file as os.OpenFile does.
func (OS) Open(path string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err // not f: a nil *os.File in a File would not be nil
	}
	return f, nil
}

// Link is os.Link.
func (OS) Link(from, to string) error { return os.Link(from, to) }

// Rename is os.Rename.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove is os.Remove.
func (OS) Remove(path string) error { return os.Remove(path) }

// Mkdir is os.Mkdir.
func (OS) Mkdir(path string, perm fs.FileMode) error { return os.Mkdir(path, perm) }

// Chmod is os.Chmod.
func (OS) Chmod(path string, mode fs.FileMode) error { return os.Chmod(path, mode) }

// Chown is os.Chown.
func (OS) Chown(path string, uid, gid int) error { return os.Chown(path, uid, gid) }

// Stat is os.Stat.
func (OS) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }

// Lstat is os.Lstat.
func (OS) Lstat(path string) (fs.FileInfo, error) { return os.Lstat(path) }

// ReadFile is os.ReadFile.
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// Names lists a folder.
func (OS) Names(path string) ([]string, error) {
	d, err := os.Open(path)
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
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}
