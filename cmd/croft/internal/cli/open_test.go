package cli

import (
	"os/user"
	"path/filepath"
	"testing"
)

func TestTheDefaultStoreDoesNotDependOnTheEnvironment(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", filepath.Join(t.TempDir(), "elsewhere"))
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv(EnvStore, "")
	a := &App{StoreGiven: func() bool { return false }}
	name, defaulted, err := a.StoreName()
	if want := filepath.Join(me.HomeDir, ".local", "state", "croft"); err != nil || name != want || !defaulted {
		t.Errorf("got %s (defaulted: %v), %v; want %s", name, defaulted, err, want)
	}
}

func TestAStoresPathMeansTheSameInEveryDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for given, want := range map[string]string{
		"locks":            filepath.Join(dir, "locks"),
		"/a/../b":          filepath.Clean("/b"),
		"~/locks":          "~/locks",
		"redis://host/0":   "redis://host/0",
		"./odd://name":     filepath.Join(dir, "odd:", "name"),
		"./odd:name":       filepath.Join(dir, "odd:name"),
		"memcached:foo":    "memcached:foo",
		"dir:///shared/it": "dir:///shared/it",
	} {
		a := &App{StoreURL: given, StoreGiven: func() bool { return true }}
		if got, defaulted, err := a.StoreName(); err != nil || got != want || defaulted {
			t.Errorf("%s: got %s (defaulted: %v), %v; want %s", given, got, defaulted, err, want)
		}
	}
}
