package dir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/examine"
	"github.com/croft-dev/croft/internal/mount"
	"github.com/croft-dev/croft/store"
)

// TestExamineTellsAllThereIsToKnow: every check has a finding, and every
// finding that is not OK has advice.
func TestExamineTellsAllThereIsToKnow(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	p.must(acquire("one", "ann"))
	p.must(acquire("two", "ann"))
	look := func() map[string]store.Finding {
		t.Helper()
		findings, err := p.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]store.Finding{}
		for _, f := range findings {
			all[f.Check] = f
			if f.Seen == "" || (f.Level != store.OK && f.Advice == "") {
				t.Errorf("a finding that does not help: %+v", f)
			}
		}
		return all
	}
	all := look()
	for _, check := range []string{"tier", "file system", "free space", "link", "clock", "permissions", "sync folder", "keys", "leftovers"} {
		if _, ok := all[check]; !ok {
			t.Errorf("nothing is said about the %s", check)
		}
	}
	for _, check := range []string{"link", "clock", "permissions", "sync folder", "keys", "leftovers"} {
		if all[check].Level != store.OK {
			t.Errorf("%+v", all[check])
		}
	}
	if all["keys"].Seen != "2" {
		t.Errorf("two keys: %+v", all["keys"])
	}

	// Break one thing after another.
	if err := os.Truncate(p.newest("one"), 5); err != nil {
		t.Fatal(err)
	}
	if f := look()["keys"]; f.Level != store.Bad || !strings.Contains(f.Seen, p.newest("one")) {
		t.Errorf("a damaged record: %+v", f)
	}
	left := p.reg.temp("new")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-10 * leftoverAge)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	if f := look()["leftovers"]; !strings.HasPrefix(f.Seen, "1 ") {
		t.Errorf("a leftover: %+v", f)
	}
	for mode, level := range map[os.FileMode]store.Level{
		0o770: store.Warn, 0o770 | os.ModeSetgid: store.OK, 0o777: store.Warn, 0o755: store.OK, 0o700: store.OK,
	} {
		if err := os.Chmod(p.root, mode); err != nil {
			t.Fatal(err)
		}
		if f := look()["permissions"]; f.Level != level {
			t.Errorf("%v: %+v", mode, f)
		}
	}
	if err := os.WriteFile(filepath.Join(p.root, ".stfolder"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := look()["sync folder"]; f.Level != store.Bad || !strings.Contains(f.Seen, "Syncthing") {
		t.Errorf("a folder that is copied: %+v", f)
	}
}

// TestExamineGradesFileSystems: a file system weaker than a local disk gets a
// warning with advice.
func TestExamineGradesFileSystems(t *testing.T) {
	t.Parallel()
	for kind, warns := range map[mount.Kind]bool{
		mount.Local: false, mount.Memory: false, mount.Network: true, mount.Foreign: true, mount.Overlay: true, mount.Unknown: true,
	} {
		f := gradeMount(mount.Mount{Name: "some", Kind: kind})
		if warns != (f.Level == store.Warn) || !strings.HasPrefix(f.Seen, "some") || warns == (f.Advice == "") {
			t.Errorf("kind %d: %+v", kind, f)
		}
	}
	for _, c := range []struct {
		m     mount.Mount
		level store.Level
	}{
		{mount.Mount{Free: 50 << 30, Size: 100 << 30}, store.OK},
		{mount.Mount{Free: 4 << 30, Size: 100 << 30}, store.Warn},
		{mount.Mount{Free: 9 << 20, Size: 10 << 20}, store.Warn},
		{mount.Mount{Free: 50 << 30, Size: 100 << 30, FreeFiles: 1, Files: 100}, store.Warn},
		{mount.Mount{Free: 50 << 30, Size: 100 << 30, FreeFiles: 50, Files: 100}, store.OK},
		{mount.Mount{Free: 4095, Size: 100 << 30}, store.Bad},
		{mount.Mount{Free: 50 << 30, Size: 100 << 30, FreeFiles: 0, Files: 100}, store.Bad},
	} {
		if f := examine.Space(c.m); f.Level != c.level || (c.level == store.OK) != (f.Advice == "") {
			t.Errorf("%+v: %+v", c.m, f)
		}
	}
}
