package fsys

import (
	"errors"
	"io/fs"
	"os"
)

// ErrCrashed is the error of every step after a simulated crash.
var ErrCrashed = errors.New("fsys: simulated crash")

// Step is a step that is about to be taken. Op is its name ("open", "write",
// "sync", "link", …) and Path is its file, or the target if there are two.
type Step struct {
	Op, Path string
}

// Faulty is a file system whose steps a test can fail, delay or observe.
type Faulty struct {
	FS FS
	// Before is called before each step. If it returns an error, the step is
	// not taken and fails with that error. It may block, to hold a caller
	// between two steps.
	Before func(Step) error
	// After is called after a step was taken. If it returns an error, the
	// caller sees that error although the step was taken.
	After func(Step) error
	// Tear, if set, makes torn writes: it says how many bytes of a write still
	// reach the file when Before fails it. Negative: none.
	Tear func(s Step, n int) int
}

func (f *Faulty) step(op string, path Path, do func() error) error {
	s := Step{op, path.String()}
	if f.Before != nil {
		if err := f.Before(s); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if f.After != nil {
		return f.After(s)
	}
	return nil
}

// OpenDir is a wrapped step.
func (f *Faulty) OpenDir(path Path) (dir *os.File, err error) {
	err = f.step("opendir", path, func() error { dir, err = f.FS.OpenDir(path); return err })
	if err != nil {
		if dir != nil {
			_ = dir.Close()
		}
		return nil, err
	}
	return dir, nil
}

// Open opens a file whose own steps are wrapped too.
func (f *Faulty) Open(path Path, flag int, perm fs.FileMode) (file File, err error) {
	err = f.step("open", path, func() error { file, err = f.FS.Open(path, flag, perm); return err })
	if err != nil {
		if file != nil {
			_ = file.Close()
		}
		return nil, err
	}
	return &faultyFile{File: file, fs: f, path: path}, nil
}

// Link is a wrapped step.
func (f *Faulty) Link(from, to Path) error {
	return f.step("link", to, func() error { return f.FS.Link(from, to) })
}

// Rename is a wrapped step.
func (f *Faulty) Rename(from, to Path) error {
	return f.step("rename", to, func() error { return f.FS.Rename(from, to) })
}

// Remove is a wrapped step.
func (f *Faulty) Remove(path Path) error {
	return f.step("remove", path, func() error { return f.FS.Remove(path) })
}

// Mkdir is a wrapped step.
func (f *Faulty) Mkdir(path Path, perm fs.FileMode) error {
	return f.step("mkdir", path, func() error { return f.FS.Mkdir(path, perm) })
}

// Chmod is a wrapped step.
func (f *Faulty) Chmod(path Path, mode fs.FileMode) error {
	return f.step("chmod", path, func() error { return f.FS.Chmod(path, mode) })
}

// Stat is a wrapped step.
func (f *Faulty) Stat(path Path) (info fs.FileInfo, err error) {
	err = f.step("stat", path, func() error { info, err = f.FS.Stat(path); return err })
	return info, err
}

// Lstat is a wrapped step.
func (f *Faulty) Lstat(path Path) (info fs.FileInfo, err error) {
	err = f.step("lstat", path, func() error { info, err = f.FS.Lstat(path); return err })
	return info, err
}

// Writable is a wrapped step.
func (f *Faulty) Writable(path Path) error {
	return f.step("writable", path, func() error { return f.FS.Writable(path) })
}

// ReadFile is a wrapped step.
func (f *Faulty) ReadFile(path Path, limit int) (data []byte, err error) {
	err = f.step("readfile", path, func() error { data, err = f.FS.ReadFile(path, limit); return err })
	return data, err
}

// Names is a wrapped step.
func (f *Faulty) Names(path Path) (names []string, err error) {
	err = f.step("names", path, func() error { names, err = f.FS.Names(path); return err })
	return names, err
}

// SyncDir is a wrapped step.
func (f *Faulty) SyncDir(path Path) error {
	return f.step("syncdir", path, func() error { return f.FS.SyncDir(path) })
}

type faultyFile struct {
	File
	fs   *Faulty
	path Path
}

func (f *faultyFile) Write(p []byte) (n int, err error) {
	err = f.fs.step("write", f.path, func() error { n, err = f.File.Write(p); return err })
	if err != nil && n == 0 {
		n = f.torn("write", p, f.File.Write)
	}
	return n, err
}

func (f *faultyFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.fs.step("write", f.path, func() error { n, err = f.File.WriteAt(p, off); return err })
	if err != nil && n == 0 {
		n = f.torn("write", p, func(b []byte) (int, error) { return f.File.WriteAt(b, off) })
	}
	return n, err
}

// torn lets the first bytes of a failed write reach the file.
func (f *faultyFile) torn(op string, p []byte, write func([]byte) (int, error)) int {
	if f.fs.Tear == nil {
		return 0
	}
	n := min(f.fs.Tear(Step{op, f.path.String()}, len(p)), len(p))
	if n <= 0 {
		return 0
	}
	n, _ = write(p[:n])
	return n
}

func (f *faultyFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.fs.step("read", f.path, func() error { n, err = f.File.ReadAt(p, off); return err })
	return n, err
}

func (f *faultyFile) Sync() error {
	return f.fs.step("sync", f.path, f.File.Sync)
}

func (f *faultyFile) Stat() (info fs.FileInfo, err error) {
	err = f.fs.step("fstat", f.path, func() error { info, err = f.File.Stat(); return err })
	return info, err
}

func (f *faultyFile) Chmod(mode fs.FileMode) error {
	return f.fs.step("fchmod", f.path, func() error { return f.File.Chmod(mode) })
}

func (f *faultyFile) Chown(uid, gid int) error {
	return f.fs.step("fchown", f.path, func() error { return f.File.Chown(uid, gid) })
}

func (f *faultyFile) Close() error {
	return f.fs.step("close", f.path, f.File.Close)
}
