package main

import (
	"context"
	"errors"
	"net/url"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/store"
)

func TestTheDefaultStoreDoesNotDependOnTheEnvironment(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", filepath.Join(t.TempDir(), "elsewhere"))
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv(envStore, "")
	a := &app{storeGiven: func() bool { return false }}
	name, defaulted, err := a.storeName()
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
		"dir:///shared/it": "dir:///shared/it",
	} {
		a := &app{storeURL: given, storeGiven: func() bool { return true }}
		if got, defaulted, err := a.storeName(); err != nil || got != want || defaulted {
			t.Errorf("%s: got %s (defaulted: %v), %v; want %s", given, got, defaulted, err, want)
		}
	}
}

func TestAStoreThatDoesNotAnswerIsGivenUp(t *testing.T) {
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	store.Register("hung", func(context.Context, *url.URL) (store.Store, error) {
		<-hung
		return nil, errors.New("too late")
	})
	var stdout, stderr strings.Builder
	if code := Main([]string{"ls", "--store", "hung://ada:hunter22@host/x", "--timeout", "10ms"}, strings.NewReader(""), &stdout, &stderr); code != exitUnknown {
		t.Errorf("exit code %d, want %d", code, exitUnknown)
	}
	if got := stderr.String(); !strings.Contains(got, "hung://ada:xxxxx@host/x cannot be opened") {
		t.Errorf("it says %q", got)
	}
}
