//go:build unix

package fsys

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPrivateIsWhatNobodyElseCanChange: neither the file nor a folder above it.
func TestPrivateIsWhatNobodyElseCanChange(t *testing.T) {
	top := t.TempDir()
	folder := filepath.Join(top, "a", "b")
	file := filepath.Join(folder, "f")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !Private(file) || !Private(folder) {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s lies where others can write, so nothing can be shown there", top)
		}
		t.Skipf("NOT TESTED: %s lies where others can write; set TMPDIR", top)
	}
	for _, c := range []struct {
		path string
		mode os.FileMode
		want bool
	}{
		{file, 0o644, true},
		{file, 0o620, false},
		{file, 0o602, false},
		{folder, 0o755, true},
		{folder, 0o770, false},
		{folder, os.ModeSticky | 0o777, false},
		{filepath.Dir(folder), 0o777, false},
		{filepath.Dir(folder), os.ModeSticky | 0o777, true},
	} {
		before, err := os.Stat(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		if Private(file) != c.want {
			t.Errorf("%s with mode %v: %v, want %v", c.path, c.mode, !c.want, c.want)
		}
		if err := os.Chmod(c.path, before.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Dir(folder), 65534, -1); err != nil {
			t.Fatal(err)
		}
		if Private(file) {
			t.Error("a folder above belongs to another user, who can replace what is below")
		}
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(filepath.Join(top, "none"), link); err != nil {
		t.Fatal(err)
	}
	if Private(link) {
		t.Error("a link to nothing is private")
	}
}
