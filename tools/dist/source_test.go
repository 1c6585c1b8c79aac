package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A version must not be built from another commit, or from files that are not
// in the tag.
func TestAVersionIsBuiltFromItsTagAlone(t *testing.T) {
	top, do := clone(t)
	check := func(what, version string, refusal string) {
		t.Helper()
		_, err := findOrigin(t.Context(), top, version)
		if refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("%s: %v, want %q", what, err, refusal)
		}
	}
	file := filepath.Join(top, "main.go")
	write(t, file, "package main\n")
	write(t, filepath.Join(top, ".gitignore"), "*.prof\n")
	write(t, filepath.Join(top, "cpu.prof"), "")
	check("an unpacked archive", "v1.2.3", "")

	do("init", "--quiet")
	check("a file that was never committed", "v1.2.3", "main.go")
	do("add", ".")
	do("commit", "--quiet", "--message", "first")
	check("a commit without a tag", "v1.2.3", "not tagged v1.2.3")
	do("tag", "v1.2.3")
	do("tag", "--annotate", "--message", "second", "v1.2.4")
	check("the tag", "v1.2.3", "")
	check("a second tag of the same commit", "v1.2.4", "")
	check("another tag", "v1.2.30", "not tagged v1.2.30")
	added := filepath.Join(top, "z.go")
	write(t, added, "package main\n")
	write(t, filepath.Join(top, ".git", "info", "exclude"), "z.go\n")
	check("a file that only this clone ignores", "v1.2.3", "z.go")
	if err := os.Remove(added); err != nil {
		t.Fatal(err)
	}
	write(t, file, "package main // changed\n")
	check("a changed file", "v1.2.3", "main.go")

	t.Chdir(top)
	if err := run(t.Context(), nil, "v1.2.3", t.TempDir(), "nfpm", io.Discard); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Errorf("dist of a changed file: %v, want that it is named", err)
	}
}

// Line ends must not change, even if git is set to change them, as it is by
// default on Windows. A release contains the README, and the binary contains
// scripts.
func TestACloneHasTheSameLineEndsEverywhere(t *testing.T) {
	top, do := clone(t)
	write(t, filepath.Join(top, ".gitattributes"), string(read(t, filepath.Join("..", "..", ".gitattributes"))))
	do("init", "--quiet")
	do("config", "core.autocrlf", "true")
	for _, name := range []string{"README.md", "LICENSE", "apply.lua"} {
		write(t, filepath.Join(top, name), "one\ntwo\n")
	}
	do("add", ".")
	do("commit", "--quiet", "--message", "first")
	for _, name := range []string{"README.md", "LICENSE", "apply.lua"} {
		if err := os.Remove(filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
		do("checkout", "--", name)
		if got := string(read(t, filepath.Join(top, name))); got != "one\ntwo\n" {
			t.Errorf("%s is checked out as %q", name, got)
		}
	}
}

// clone makes a folder for a repository, and returns a function that runs git
// there. It ignores the user's settings, and the user's repository, which a
// hook's environment may name.
func clone(t *testing.T) (top string, do func(args ...string)) {
	t.Helper()
	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull,
		"GIT_AUTHOR_NAME": "ann", "GIT_AUTHOR_EMAIL": "ann@example.org",
		"GIT_COMMITTER_NAME": "ann", "GIT_COMMITTER_EMAIL": "ann@example.org",
		"GIT_DIR": t.TempDir(), "GIT_INDEX_FILE": filepath.Join(t.TempDir(), "index"),
	} {
		t.Setenv(name, value)
	}
	top = t.TempDir()
	return top, func(args ...string) {
		t.Helper()
		if _, err := git(t.Context(), top, args...); err != nil {
			t.Fatal(err)
		}
	}
}

// Settings that `go env -w` keeps for a user must count as little as those of
// the shell. A build must still find its modules.
func TestSettingsOfTheUserChangeNoByte(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "env")
	write(t, settings, "GOEXPERIMENT=arenas\nGOPROXY=https://proxy.example\n")
	t.Setenv("GOENV", settings)
	t.Setenv("GOEXPERIMENT", "") // empty: the file decides
	t.Setenv("GOPROXY", "")
	for name, want := range map[string]string{"GOEXPERIMENT": "", "GOPROXY": "https://proxy.example"} {
		if got := goSays(t, ".", "env", name); got != want {
			t.Errorf("a build has %s=%q, want %q", name, got, want)
		}
	}
}
