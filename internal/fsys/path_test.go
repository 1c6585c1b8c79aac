//go:build linux || darwin

package fsys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// forest makes a folder with files, and with links to them.
func forest(t *testing.T) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err,
		os.MkdirAll(filepath.Join(top, "a", "b"), 0o700),
		os.WriteFile(filepath.Join(top, "a", "b", "file"), []byte("content"), 0o640),
		os.Symlink("a", filepath.Join(top, "folder-link")),
		os.Symlink("a/b/file", filepath.Join(top, "file-link")),
		os.Symlink("../b", filepath.Join(top, "a", "b", "up-link")),
		syscall.Mkfifo(filepath.Join(top, "pipe"), 0o600))
	return top
}

func TestNoLinkIsFollowedBelowATrustedFolder(t *testing.T) {
	t.Run("in one call", noLinkIsFollowed)
	// As with an older kernel, or in a container that forbids the call.
	t.Run("step by step", func(t *testing.T) {
		defer func() { noLinks = openNoLinks }()
		noLinks = func(int, string, int, uint32) (int, error) { return -1, unix.ENOSYS }
		noLinkIsFollowed(t)
	})
}

func noLinkIsFollowed(t *testing.T) {
	top := forest(t)
	dir, err := os.Open(top)
	must(t, err)
	defer dir.Close()
	open := func(way string, flag int) error {
		fd, err := beneath(int(dir.Fd()), way, flag, 0o600)
		if err == nil {
			must(t, unix.Close(fd))
		}
		return err
	}
	for _, way := range []string{"a/b/file", "a/b", "a", "."} {
		if err := open(way, unix.O_RDONLY); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
	for _, way := range []string{"folder-link/b/file", "folder-link", "file-link", "a/b/up-link/file", "a/b/up-link"} {
		for _, flag := range []int{unix.O_RDONLY, passFlags} {
			if err := open(way, flag); !errors.Is(err, unix.ELOOP) {
				t.Errorf("%s with %#x: %v; want a link refused", way, flag, err)
			}
		}
	}
	if err := open("file-link", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a new file in a link's place: %v", err)
	}
	through := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(top, through))
	if _, err := Below(OS{}, through).Names(filepath.Join(through, "a")); err != nil {
		t.Errorf("through a link to the trusted folder: %v", err)
	}
	tree := Below(OS{}, top)
	bad := filepath.Join(top, "folder-link", "b")
	file := filepath.Join(top, "a", "b", "file")
	for step, err := range map[string]error{
		"open":   second(tree.Open(filepath.Join(bad, "file"), os.O_RDONLY, 0)),
		"create": second(tree.Open(filepath.Join(bad, "new"), os.O_WRONLY|os.O_CREATE, 0o600)),
		"link":   tree.Link(file, filepath.Join(bad, "new")),
		"from":   tree.Link(filepath.Join(bad, "file"), filepath.Join(top, "new")),
		"rename": tree.Rename(file, filepath.Join(bad, "new")),
		"remove": tree.Remove(filepath.Join(bad, "file")),
		"mkdir":  tree.Mkdir(filepath.Join(bad, "new"), 0o700),
		"chmod":  tree.Chmod(filepath.Join(top, "folder-link"), 0o777),
		"lstat":  second(tree.Lstat(filepath.Join(bad, "file"))),
		"stat":   second(tree.Stat(filepath.Join(bad, "file"))),
		"read":   second(tree.ReadFile(filepath.Join(top, "file-link"), 100)),
		"names":  second(tree.Names(bad)),
		"sync":   tree.SyncDir(bad),
	} {
		if !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s through a link: %v", step, err)
		}
	}
	if names, err := tree.Names(filepath.Join(top, "a", "b")); err != nil || len(names) != 2 {
		t.Errorf("the folder holds %v, %v", names, err)
	}
	must(t, tree.Remove(filepath.Join(top, "folder-link")), tree.Chmod(filepath.Join(top, "a"), 0o711))
}

func second[T any](_ T, err error) error { return err }

func TestReadFileIsBounded(t *testing.T) {
	top := forest(t)
	tree := Below(OS{}, top)
	file := filepath.Join(top, "a", "b", "file")
	if data, err := tree.ReadFile(file, 7); err != nil || string(data) != "content" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := tree.ReadFile(file, 6); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte too many: %v", err)
	}
	for _, name := range []string{"pipe", "a"} {
		if _, err := tree.ReadFile(filepath.Join(top, name), 100); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tree.ReadFile(filepath.Join(top, "absent"), 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func TestAHeldFolderIsTheSameWhereverItsPathLeads(t *testing.T) {
	top := forest(t)
	folder := filepath.Join(top, "a", "b")
	if _, err := Hold(OS{}, filepath.Join(top, "folder-link", "b")); err == nil {
		t.Error("a folder behind a link can be held")
	}
	tree, err := Hold(OS{}, folder)
	must(t, err)
	defer tree.Close()
	if moved, err := tree.Moved(); moved || err != nil {
		t.Errorf("moved: %t, %v", moved, err)
	}
	must(t, os.Rename(folder, filepath.Join(top, "away")), os.Symlink("../away", folder))
	if moved, err := tree.Moved(); moved || err != nil {
		t.Errorf("moved, and a link leads there: %t, %v", moved, err)
	}
	must(t, os.Remove(folder), os.Mkdir(folder, 0o700))
	if moved, err := tree.Moved(); !moved || err != nil {
		t.Errorf("moved: %t, %v", moved, err)
	}
	must(t, tree.Mkdir(filepath.Join(folder, "new"), 0o700), tree.SyncDir(folder))
	if names, err := tree.Names(folder); err != nil || !strings.Contains(strings.Join(names, " "), "new") {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := os.Lstat(filepath.Join(top, "away", "new")); err != nil {
		t.Error(err)
	}
}

func TestLstatTellsWhatOsLstatTells(t *testing.T) {
	top := forest(t)
	must(t, os.Chmod(filepath.Join(top, "a"), 0o751|fs.ModeSticky|fs.ModeSetgid))
	for _, name := range []string{"a", "a/b/file", "file-link", "pipe"} {
		path := filepath.Join(top, name)
		got, err := Below(OS{}, top).Lstat(path)
		must(t, err)
		want, err := os.Lstat(path)
		must(t, err)
		if got.Name() != want.Name() || got.Size() != want.Size() || got.Mode() != want.Mode() ||
			got.IsDir() != want.IsDir() || !got.ModTime().Equal(want.ModTime()) ||
			*got.Sys().(*syscall.Stat_t) != *want.Sys().(*syscall.Stat_t) || !SameFile(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestRenameReplacesNoFolder: as os.Rename. The store relies on it.
func TestRenameReplacesNoFolder(t *testing.T) {
	top := t.TempDir()
	one, other := filepath.Join(top, "one"), filepath.Join(top, "other")
	must(t, os.Mkdir(one, 0o700), os.Mkdir(other, 0o700))
	if err := Below(OS{}, top).Rename(one, other); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over an empty folder: %v", err)
	}
	if err := Below(OS{}, top).Rename(filepath.Join(top, "absent"), other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing, over a folder: %v", err)
	}
}
