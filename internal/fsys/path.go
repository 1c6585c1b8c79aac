package fsys

import (
	"io/fs"
	"os"
	"strings"
)

// Path names a file by a trusted folder and a path below it. Below the folder
// no link is followed.
type Path struct {
	full string
	top  string   // the trusted folder; "": links are followed everywhere
	dir  *os.File // an open handle of top; nil: each step opens top anew
}

// Anywhere names a file as any program does: links are followed.
func Anywhere(path string) Path { return Path{full: path} }

// String returns the whole path, for people and for tests.
func (p Path) String() string { return p.full }

// below returns the path below the trusted folder.
func (p Path) below() string {
	if p.full == p.top {
		return "."
	}
	return strings.TrimPrefix(strings.TrimPrefix(p.full, p.top), "/")
}

// Tree is the part of a file system below one trusted folder. It has the
// methods of [FS], but with whole paths. For paths outside of the folder, links
// are followed.
type Tree struct {
	FS  FS
	top string
	dir *os.File
}

// Below returns the tree below a folder. Each step looks the folder up by its
// path, so that it works on whatever is mounted or restored there.
func Below(fsy FS, top string) Tree { return Tree{FS: fsy, top: top} }

// Hold opens a folder and returns the tree below it. Each step is taken in this
// very folder, even if its path leads elsewhere meanwhile. The path must be
// absolute and contain no link. [Tree.Close] closes the folder.
func Hold(fsy FS, folder string) (Tree, error) {
	dir, err := fsy.OpenDir(Path{full: folder, top: "/"})
	if err != nil {
		return Tree{}, err
	}
	return Tree{FS: fsy, top: folder, dir: dir}, nil
}

// Close closes a folder that Hold opened.
func (t Tree) Close() error {
	if t.dir == nil {
		return nil
	}
	return t.dir.Close()
}

// Moved reports whether the path of a held folder now leads elsewhere. Links on
// the path are followed.
func (t Tree) Moved() (bool, error) {
	mine, err := t.dir.Stat()
	if err != nil {
		return true, err
	}
	there, err := t.FS.Stat(Anywhere(t.top))
	if err != nil {
		return true, err
	}
	return !SameFile(mine, there), nil
}

// path returns the Path of a step.
func (t Tree) path(full string) Path {
	if full == t.top && t.dir == nil { // the trusted folder itself
		return Anywhere(full)
	}
	if full == t.top || strings.HasPrefix(full, strings.TrimSuffix(t.top, "/")+"/") {
		return Path{full: full, top: t.top, dir: t.dir}
	}
	return Anywhere(full)
}

// Open is FS.Open.
func (t Tree) Open(path string, flag int, perm fs.FileMode) (File, error) {
	return t.FS.Open(t.path(path), flag, perm)
}

// Link is FS.Link.
func (t Tree) Link(from, to string) error { return t.FS.Link(t.path(from), t.path(to)) }

// Rename is FS.Rename.
func (t Tree) Rename(from, to string) error { return t.FS.Rename(t.path(from), t.path(to)) }

// Remove is FS.Remove.
func (t Tree) Remove(path string) error { return t.FS.Remove(t.path(path)) }

// Mkdir is FS.Mkdir.
func (t Tree) Mkdir(path string, perm fs.FileMode) error { return t.FS.Mkdir(t.path(path), perm) }

// Chmod is FS.Chmod.
func (t Tree) Chmod(path string, mode fs.FileMode) error { return t.FS.Chmod(t.path(path), mode) }

// Stat is FS.Stat.
func (t Tree) Stat(path string) (fs.FileInfo, error) { return t.FS.Stat(t.path(path)) }

// Lstat is FS.Lstat.
func (t Tree) Lstat(path string) (fs.FileInfo, error) { return t.FS.Lstat(t.path(path)) }

// Writable is FS.Writable.
func (t Tree) Writable(path string) error { return t.FS.Writable(t.path(path)) }

// ReadFile is FS.ReadFile.
func (t Tree) ReadFile(path string, limit int) ([]byte, error) {
	return t.FS.ReadFile(t.path(path), limit)
}

// Names is FS.Names.
func (t Tree) Names(path string) ([]string, error) { return t.FS.Names(t.path(path)) }

// SyncDir is FS.SyncDir.
func (t Tree) SyncDir(path string) error { return t.FS.SyncDir(t.path(path)) }
