package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestChainTrustsNothingThatIsNoFileOfItsOwn: the guard follows no link, waits
// for no pipe, and reads no file as a version that is too large or altered.
func TestChainTrustsNothingThatIsNoFileOfItsOwn(t *testing.T) {
	replace := func(by func(path string) error) func(string) error {
		return func(path string) error {
			return errors.Join(os.Rename(path, path+".away"), by(path))
		}
	}
	link := replace(func(path string) error { return os.Symlink(path+".away", path) })
	pipe := replace(func(path string) error { return syscall.Mkfifo(path, 0o600) })
	large := func(path string) error { return os.Truncate(path, chainMost+1) }
	altered := func(path string) error {
		data, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path, []byte(strings.Replace(string(data), "2", "3", 1)), 0o600))
	}
	for name, c := range map[string]struct {
		attack func(string) error
		on     string // a pattern in the chain's folder; "": the folder itself
	}{
		"the folder is a link":      {link, ""},
		"a version is a link":       {link, versionName(3)},
		"a version is a pipe":       {pipe, versionName(3)},
		"a version is large":        {large, versionName(3)},
		"a version is altered":      {altered, versionName(3)},
		"the one before is a link":  {link, versionName(2)},
		"a content is a link":       {link, partName(contentKind, 3, "*")},
		"a content is a pipe":       {pipe, partName(contentKind, 3, "*")},
		"a content is altered":      {altered, partName(contentKind, 3, "*")},
		"a content has another end": {large, partName(contentKind, 3, "*")},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(testenv.Memory(t), "artifact")
			f := chainOpen(t, fsys.OS{}, path)
			guardPut(t, f, 1, "content 1")
			guardPut(t, f, 2, "content 2")
			found, err := filepath.Glob(filepath.Join(f.sidecar+chainSuffix, c.on))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			guardMust(t, c.attack(filepath.Clean(found[0])))
			if got, _, err := chainContents(t.Context(), chainOpen(t, fsys.OS{}, path)); err == nil {
				t.Errorf("read %q", got)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != "content 2" {
				t.Errorf("the file became %q, %v", got, err)
			}
		})
	}
}

// TestChainOfAnotherUserIsNotTrustedInAStickyDirectory, also by a guard that
// would have used a sidecar.
func TestChainOfAnotherUserIsNotTrustedInAStickyDirectory(t *testing.T) {
	testenv.NeedRoot(t)
	folder := testenv.Memory(t)
	guardMust(t, os.Chmod(folder, 0o777|fs.ModeSticky))
	path := filepath.Join(folder, "artifact")
	guardPut(t, chainOpen(t, fsys.OS{}, path), 1, "one")
	home := path + guardSuffix + chainSuffix
	if info, err := os.Stat(home); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v: want it for its owner alone", info.Mode(), err)
	}
	guardMust(t, os.Chown(home, testenv.Neighbour, testenv.Neighbour))
	var damaged *ChainError
	if _, err := guardOpen(t, path).Raise(t.Context(), guardStamp(2)); !errors.As(err, &damaged) {
		t.Errorf("%v, want a ChainError", err)
	}
	guardMust(t, os.Chown(path, testenv.Neighbour, testenv.Neighbour)) // its own file
	if _, err := guardOpen(t, path).Raise(t.Context(), guardStamp(2)); err != nil {
		t.Error(err)
	}
}
