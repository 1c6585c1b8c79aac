package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/mount"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// TestUnfitPathsAreRefused: the error names the path and says how to go
// on.
func TestUnfitPathsAreRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	marked := func(text string) string {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, markerName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return root
	}
	synced := func(marker string) string {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, marker), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(root, "some", "store")
	}
	into := func(name string) string {
		target := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(target, 0o700); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "innocent")
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(link, "store")
	}
	for _, c := range []struct{ path, says string }{
		{"", "name a directory"},
		{"~/store", "write the whole path"},
		{"a\x00b", "NUL"},
		{file, "not a directory"},
		{filepath.Join(file, "below"), "not a directory"},
		{marked(`{"format":2}`), "use a newer croft"},
		{marked(`{"format":`), "move the file away"},
		{marked(`{}`), "move the file away"},
		{"/home/ann/Dropbox/store", "Dropbox"},
		{"/home/ann/Dropbox (Personal)/store", "Dropbox"},
		{"/Users/ann/OneDrive - Contoso/x/store", "OneDrive"},
		{"/Users/ann/Library/Mobile Documents/com~apple~CloudDocs/store", "iCloud"},
		{"/Users/ann/Library/CloudStorage/GoogleDrive-ann@example.com/store", "cloud"},
		{"/home/ann/Google Drive/store", "Google"},
		{synced(".dropbox"), "Dropbox"},
		{synced(".stfolder"), "Syncthing"},
		{into("Dropbox"), "Dropbox"},
	} {
		st, err := Open(c.path, nil)
		if err == nil {
			st.Close()
		}
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v; want invalid, and %q", c.path, err, c.says)
		}
	}
	for _, path := range []string{"/srv/dropbox-incoming/x", "/srv/My Dropboxes/x", "/srv/OneDriveBackups/x"} {
		if service, _ := mount.SyncedByName(path); service != "" {
			t.Errorf("%s is taken for a folder of %s", path, service)
		}
	}
	if _, err := Open(t.TempDir(), &Options{Retention: -1}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a negative retention: %v", err)
	}
}

// TestADirectoryThatCannotBeUsedIsExplained: the error has the system's words,
// and advice.
func TestADirectoryThatCannotBeUsedIsExplained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		says string
	}{
		{syscall.EACCES, "permission"},
		{syscall.EROFS, "read-only"},
		{syscall.ENOSPC, "free some space"},
		{syscall.EDQUOT, "free some space"},
		{syscall.EIO, "system's log"},
		{syscall.ESTALE, "mount it again"},
		{syscall.EMFILE, "ulimit"},
		{syscall.ELOOP, "see who put it there"},
		{syscall.EBUSY, "by hand"},
	} {
		for _, op := range []string{"mkdir", "open", "readfile", "link"} {
			root := testenv.Memory(t)
			fsy := &fsys.Faulty{FS: fsys.OS{}, Before: func(s fsys.Step) error { return failFrom(s.Op == op, c.err) }}
			_, err := Open(filepath.Join(root, "store"), &Options{fs: fsy})
			if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), root) {
				t.Errorf("%s fails with %v: %v", op, c.err, err)
			}
		}
	}
}

// TestAFileSystemWithoutLinksIsRefused: also if it has links that are not
// exclusive.
func TestAFileSystemWithoutLinksIsRefused(t *testing.T) {
	t.Parallel()
	root := testenv.Memory(t)
	without := &fsys.Faulty{FS: fsys.OS{}, Before: func(s fsys.Step) error { return failFrom(s.Op == "link", syscall.EPERM) }}
	for what, fsy := range map[string]fsys.FS{"no links": without, "links that replace": replacing{fsys.OS{}}} {
		_, err := Open(filepath.Join(root, what), &Options{fs: fsy})
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "hard links") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// replacing is a file system whose links replace an existing file.
type replacing struct{ fsys.FS }

func (r replacing) Link(from, to fsys.Path) error {
	_ = r.FS.Remove(to)
	return r.FS.Link(from, to)
}

// TestURLs: a store's URL may have a path and a retention. Anything else is
// refused, not ignored.
func TestURLs(t *testing.T) {
	root := testenv.Memory(t)
	t.Chdir(root)
	for url, want := range map[string]string{
		root + "/plain":                             "plain",
		"relative":                                  "relative",
		"./there/../relative":                       "relative",
		"dir://" + root + "/url":                    "url",
		"dir://" + root + "/with%20space":           "with space",
		"dir://" + root + "/short?retention=90m":    "short",
		root + "/a?retention=not a URL, but a name": "a?retention=not a URL, but a name",
	} {
		st, err := store.Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		d, ok := st.(*Store)
		if !ok || d.reg.root != filepath.Join(root, want) {
			t.Errorf("%s opens %T at %s", url, st, d.reg.root)
		}
		if want == "short" && d.tidy.retention != 90*time.Minute {
			t.Errorf("%s: retention %s", url, d.tidy.retention)
		}
		st.Close()
	}
	for _, url := range []string{
		"dir://host/path", "dir://user@/path", "dir:///path#fragment", "dir:///path?ttl=1s", "dir:///path?retention=soon", "dir:///path?retention=-1h", "dir:///path?retention=0",
		"dir:///path?retention=1h&retention=2h", "dir:///path?retention=%zz", "dir://",
	} {
		if _, err := store.Open(t.Context(), url); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", url, err)
		}
	}
}

// TestAMountThatHasGoneAwayIsNoEmptyStore: the empty folder that an unmounted
// file system leaves behind is not an empty store.
func TestAMountThatHasGoneAwayIsNoEmptyStore(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	st := p.another(nil)
	st.reg.device++ // as if another file system were there now
	if _, err := st.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "unmounted") {
		t.Errorf("a key in a store that is not mounted: %v", err)
	}
	if a := one(st, acquire("k", "ann")); !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("acquire in a store that is not mounted: %v", a.Err)
	}
	for _, err := range st.List(t.Context(), "") {
		if !errors.Is(err, store.ErrUnknown) {
			t.Errorf("listing a store that is not mounted: %v", err)
		}
	}
}

// TestARemovedDirectoryIsMadeAnew: an open store goes on after somebody has
// removed all of it.
func TestARemovedDirectoryIsMadeAnew(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	held := acquire("k", "ann")
	p.must(held)
	if err := os.RemoveAll(p.root); err != nil {
		t.Fatal(err)
	}
	if rec := p.get("k"); !rec.IsZero() {
		t.Errorf("the record is %+v", rec)
	}
	p.clock.Advance(time.Second)
	p.must(acquire("k", "bob"))
	if info, err := os.Stat(p.root); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(p.root, markerName)); errors.Is(err, fs.ErrNotExist) {
		t.Error("the marker was not made anew")
	}
}
