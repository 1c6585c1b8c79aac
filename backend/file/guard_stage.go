package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
)

// guardStageInfix is part of every staged file's name, between the artifact's
// name and 16 hex digits.
const guardStageInfix = ".croft-stage-"

// guardStageAge is how old a staged file must be to count as left by a crash.
// Its age counts from the last write to it.
const guardStageAge = time.Hour

// guardIsStage reports whether a name belongs to a staged file.
func guardIsStage(name string) bool {
	at := strings.LastIndex(name, guardStageInfix)
	return at > 0 && name[0] == '.' && isHex(name[at+len(guardStageInfix):], 16)
}

// stagePrefix begins the names of this artifact's staged files. It cuts a long
// name: the random digits that follow make each file's name unique.
func (f *File) stagePrefix() string {
	base := filepath.Base(f.path)
	return "." + base[:min(len(base), maxName-len(guardStageInfix)-17)] + guardStageInfix
}

// guardStage is a file that shall become the artifact.
type guardStage struct {
	f     *visit
	file  fsys.File
	path  string
	like  fs.FileInfo // the artifact whose permissions it has; nil if there was none
	taken bool        // renamed: it is the artifact now
}

// stage makes an empty file beside the artifact. It has the old artifact's
// permissions or, if there is none, those of a file that a shell's redirection
// makes. The file is locked while it is open: so no sweep takes it for a
// leftover, however long the content takes to arrive.
func (v *visit) stage(old fs.FileInfo) (*guardStage, error) {
	s, err := v.stageAs(v.newStageName(), stagePerm(old))
	if err != nil {
		return nil, err
	}
	if _, err := guardTryLock(s.file); err != nil {
		return nil, s.drop(v.failed("locking the staged content", err))
	}
	if err := s.copyPermissions(old); err != nil {
		return nil, s.drop(err)
	}
	return s, nil
}

// stageAt is stage at a given path, without a lock.
func (v *visit) stageAt(path string, old fs.FileInfo) (*guardStage, error) {
	s, err := v.stageAs(path, stagePerm(old))
	if err != nil {
		return nil, err
	}
	if err := s.copyPermissions(old); err != nil {
		return nil, s.drop(err)
	}
	return s, nil
}

// stagePerm is the permissions that a staged file is made with. Only its owner
// may read it until it has the right group. Without an artifact, the umask is
// applied.
func stagePerm(old fs.FileInfo) fs.FileMode {
	if old != nil {
		return 0o600
	}
	return 0o666
}

// newStageName is a fresh name beside the artifact.
func (f *File) newStageName() string {
	return filepath.Join(f.folder, f.stagePrefix()+newNonce()[:16])
}

// stageAs makes an empty file.
func (v *visit) stageAs(path string, perm fs.FileMode) (*guardStage, error) {
	file, err := v.fs.Open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		_ = v.fs.Remove(path) // a network mount may report an error and make it all the same
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("guard %s: %w; the content is staged in the same directory and then renamed, "+
			"so the directory must be writable", v.path, err)
	}
	if err != nil {
		return nil, v.failed("staging the new content", err)
	}
	return &guardStage{f: v, file: file, path: path}, nil
}

// failed adds to a file system's error what the guard was doing.
func (f *File) failed(doing string, err error) error {
	return fmt.Errorf("guard %s: %s: %w", f.path, doing, err)
}

// copyPermissions gives the staged file the group and permission bits of the
// old artifact. If this user is root, it gives it the owner, too.
func (s *guardStage) copyPermissions(old fs.FileInfo) error {
	if s.like = old; old == nil {
		return nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return s.f.failed("looking at the staged content", err)
	}
	if uid, gid := guardChown(info, old); uid >= 0 || gid >= 0 {
		if err := s.file.Chown(uid, gid); err != nil {
			return fmt.Errorf("guard %s: the new content cannot be given the old one's group, "+
				"and another group must not get its permissions: %w; "+
				"join that group, or give the file another with chgrp", s.f.path, err)
		}
	}
	if err := s.file.Chmod(old.Mode().Perm()); err != nil {
		return s.f.failed("giving the new content the old one's permissions", err)
	}
	return nil
}

// refreshPermissions calls copyPermissions again if the artifact's permissions
// have changed since.
func (s *guardStage) refreshPermissions(now fs.FileInfo) error {
	if now == nil {
		return nil
	}
	if s.like != nil && s.like.Mode().Perm() == now.Mode().Perm() {
		if uid, gid := guardChown(s.like, now); uid < 0 && gid < 0 {
			return nil
		}
	}
	if err := s.copyPermissions(now); err != nil {
		return err
	}
	return s.sync()
}

func (s *guardStage) sync() error {
	if err := s.file.Sync(); err != nil {
		return s.f.failed("syncing the new content", err)
	}
	return nil
}

// install renames the staged file over the artifact.
func (s *guardStage) install() error {
	if err := s.f.fs.Rename(s.path, s.f.path); err != nil {
		return err
	}
	s.taken = true
	return nil
}

// drop closes the staged file, and removes it unless it has become the
// artifact. It returns the error that it is given.
func (s *guardStage) drop(err error) error {
	if !s.taken {
		_ = s.f.fs.Remove(s.path)
	}
	_ = s.file.Close() // this also releases the lock; the content is synced, or of no use
	return err
}

// sweep removes the staged files that crashed writes left. It ignores failures,
// because no write depends on it.
func (v *visit) sweep(now time.Time) {
	v.sweeping.Lock()
	defer v.sweeping.Unlock()
	if now.Sub(v.swept) < guardStageAge {
		return
	}
	v.swept = now
	v.sweepBeside()
}

// sweepBeside removes what lies staged beside the artifact and is old enough.
func (v *visit) sweepBeside() (removed int) {
	names, err := v.fs.Names(v.folder)
	if err != nil {
		return 0
	}
	for _, name := range names {
		if guardIsStage(name) && strings.HasPrefix(name, v.stagePrefix()) && v.sweepOne(filepath.Join(v.folder, name)) {
			removed++
		}
	}
	return removed
}

func (v *visit) sweepOne(path string) bool {
	info, err := v.fs.Lstat(path)
	if err != nil || time.Since(info.ModTime()) < guardStageAge {
		return false
	}
	if info.IsDir() { // a chain that was never begun
		// In one step: its maker, if it comes back, must not put half of it in
		// place.
		grave := &chain{v, v.newStageName()}
		if v.fs.Rename(path, grave.home) != nil {
			return false
		}
		grave.clear()
		return true
	}
	if !info.Mode().IsRegular() {
		return false
	}
	file, err := v.fs.Open(path, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	free, err := guardTryLock(file)
	return err == nil && free && v.fs.Remove(path) == nil
}
