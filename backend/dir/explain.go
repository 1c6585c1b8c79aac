package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/store"
)

// explain adds to a file system's error the store's path and advice.
func (l *layout) explain(err error) error {
	if err == nil {
		return nil
	}
	advice := "see whether the directory can be read and written by hand"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		advice = "the disk is full or a quota used up: free some space; every lease is as it was"
	case errors.Is(err, syscall.EROFS):
		advice = "it is mounted read-only: mount it writable, or choose another directory"
	case errors.Is(err, fs.ErrPermission):
		advice = fmt.Sprintf("this user may not use it; its owner can share it with a group: chgrp -R GROUP %[1]s && "+
			"chmod -R g+rwX %[1]s && find %[1]s -type d -exec chmod g+s {} +; or choose another directory", l.root)
		if _, err := l.fs.Stat(l.root); errors.Is(err, fs.ErrNotExist) {
			advice = "this user may not make the directory: let another user make and share it, or choose another"
		}
	case errors.Is(err, syscall.EIO):
		advice = "the disk or the network mount failed: look at the system's log"
	case errors.Is(err, syscall.ESTALE):
		advice = "the network mount has lost it: mount it again"
	case errors.Is(err, fs.ErrNotExist):
		advice = "it was removed or unmounted meanwhile: mount it, or try again to have it made anew"
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR):
		advice = "something is in the place of a folder of the store's, and a link there is not followed: " +
			"see who put it there, and remove it"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		advice = "too many files are open: raise the limit (ulimit -n)"
	}
	return fmt.Errorf("store %s: %w; %s", l.root, err, advice)
}

// notStaged explains why a change could not be staged. Nothing was changed, so
// it is a fault if the directory cannot be written.
func (l *layout) notStaged(err error) error {
	if unwritable(err) {
		return store.Fault(l.explain(err))
	}
	return l.explain(err)
}

// foreignReason says why a file cannot be the store's: it is a link, a pipe or
// a device, or it is too large. It returns "" for any other error.
func foreignReason(err error) string {
	switch {
	case errors.Is(err, syscall.ELOOP):
		return "it is a symbolic link"
	case errors.Is(err, fsys.ErrNotRegular):
		return "it is not a regular file"
	case errors.Is(err, fsys.ErrTooLarge):
		return "it is larger than any record"
	}
	return ""
}

// noLink explains a failed link, or a second link that wrongly succeeded (err
// is nil). A passing failure keeps the system's own words. Otherwise the
// directory cannot be a store at all.
func (l *layout) noLink(err error) error {
	why := "a second link to the same name was not refused"
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EMLINK) {
			return l.explain(err)
		}
		why = err.Error()
	}
	return fmt.Errorf("store %s: its file system has no reliable hard links (%s), and leases rest on them; "+
		"choose a directory on a local disk or on NFS: %w", l.root, why, errors.ErrUnsupported)
}
