package servecmd

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// TestNoLinkLeadsToAFile: not out of the folder, and not to another file in it,
// which the policy may mean for others. Errors name no folder of the server.
func TestNoLinkLeadsToAFile(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files are guarded on Unix alone")
	}
	top := t.TempDir()
	folder, out := filepath.Join(top, "files"), filepath.Join(top, "out")
	for _, dir := range []string{folder, out, filepath.Join(folder, "sub")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{filepath.Join(folder, "sub", "real"), filepath.Join(out, "secret")} {
		if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"folder": out, "secret": filepath.Join(out, "secret"), "inside": "sub", "other": filepath.Join("sub", "real"),
		"nowhere": "none", filepath.Join("sub", "up"): "..", "root": "/",
	} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(out, "secret"), filepath.Join(folder, "hard")); err != nil {
		t.Fatal(err)
	}
	open, end, err := openFiles(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, path := range []string{
		"folder/secret", "folder/new", "secret", "inside/real", "inside/new", "other", "nowhere", "sub/up/sub/real", "root/etc/passwd",
		"hard", "sub", "sub/real/x", "none/x", "../out/secret", "/etc/passwd", "a:b", `a\b`, "",
	} {
		g, err := open(t.Context(), path)
		if !errors.Is(err, fence.ErrInvalid) || strings.Contains(err.Error(), top) {
			t.Errorf("%s: %v, %v; want invalid, and no folder in the error", path, g, err)
		}
	}
	for _, path := range []string{"sub/real", "sub/new", "new"} {
		g, err := open(t.Context(), path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if g.Target() != filepath.Join(folder, path) {
			t.Errorf("%s is %s", path, g.Target())
		}
	}
	if _, _, err := openFiles(filepath.Join(top, "none")); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, _, err := openFiles(filepath.Join(out, "secret")); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a file for a folder: %v", err)
	}
}

// TestUploadsHaveAFolderThatNoLinkLeadsOutOf, of the server's user alone.
func TestUploadsHaveAFolderThatNoLinkLeadsOutOf(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	folder, out := filepath.Join(top, "files"), filepath.Join(top, "out")
	for _, dir := range []string{folder, out} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it is there the second time
		uploads, err := openUploads(folder)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(folder, uploadsFolder))
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
		_ = uploads.Close()
	}
	if err := os.Remove(filepath.Join(folder, uploadsFolder)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, filepath.Join(folder, uploadsFolder)); err != nil {
		t.Skip(err)
	}
	if _, err := openUploads(folder); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a link: %v", err)
	}
}
