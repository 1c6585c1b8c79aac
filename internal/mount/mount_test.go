package mount

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/croft-dev/croft/internal/fsys"
)

// TestFoldersThatAreCopiedAreKnownByTheirNames: names that only resemble them
// are not taken for them.
func TestFoldersThatAreCopiedAreKnownByTheirNames(t *testing.T) {
	for path, want := range map[string]string{
		"/home/ann/Dropbox/croft.db":                               "Dropbox",
		"/home/ann/Dropbox (Personal)/a/b":                         "Dropbox",
		"/home/ann/OneDrive - Contoso/leases":                      "OneDrive",
		"/Users/ann/Library/CloudStorage/GoogleDrive-ann/My Drive": "a cloud drive",
		"/Users/ann/Library/Mobile Documents/x":                    "iCloud Drive",
		"Nextcloud/leases":                                         "Nextcloud",
		"/home/ann/Dropboxes/leases":                               "",
		"/home/ann/no Dropbox/leases":                              "",
		"/srv/leases":                                              "",
		"leases":                                                   "",
		"/":                                                        "",
	} {
		service, where := SyncedByName(filepath.FromSlash(path))
		if service != want || (where == "") != (want == "") {
			t.Errorf("%s: copied by %q (%s), want %q", path, service, where, want)
		}
	}
}

// TestFoldersThatAreCopiedAreKnownByWhatIsInThem: also through a symbolic link,
// and for a path of which only the beginning exists.
func TestFoldersThatAreCopiedAreKnownByWhatIsInThem(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	synced, plain := filepath.Join(root, "synced"), filepath.Join(root, "plain")
	for _, dir := range []string{filepath.Join(synced, ".stfolder"), filepath.Join(synced, "in", "it"), plain} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	paths := map[string]string{
		synced:                                "Syncthing",
		filepath.Join(synced, "in/it"):        "Syncthing",
		filepath.Join(synced, "not/yet/f.db"): "Syncthing",
		filepath.Join(plain, "not/yet/f.db"):  "",
	}
	if runtime.GOOS != "windows" { // on Windows links need a privilege
		link := filepath.Join(plain, "link")
		if err := os.Symlink(filepath.Join(synced, "in"), link); err != nil {
			t.Fatal(err)
		}
		paths[filepath.Join(link, "it", "f.db")] = "Syncthing"
	}
	for path, want := range paths {
		service, where := SyncedBy(fsys.OS{}, path)
		if service != want {
			t.Errorf("%s: copied by %q (%s), want %q", path, service, where, want)
		}
		if want != "" && where != filepath.Join(synced, ".stfolder") {
			t.Errorf("%s: known by %s", path, where)
		}
	}
}

// TestTheMountIsTold: Of tells the free room at a path, and fails if there is
// no such path.
func TestTheMountIsTold(t *testing.T) {
	m, err := Of(t.TempDir())
	if errors.Is(err, errors.ErrUnsupported) {
		return // it says so
	}
	if err != nil || m.Name == "" || m.Size == 0 || m.Free > m.Size {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := Of(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}
