package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A build must say which source it is made from, in a clone and in an unpacked
// archive alike.
func TestABuildKnowsVersionCommitAndDate(t *testing.T) {
	top, do := clone(t)
	t.Setenv("GIT_COMMITTER_DATE", "2026-01-31T09:00:00+01:00")
	write(t, filepath.Join(top, "cmd", "croft", "go.mod"), "module example.org\n\nrequire github.com/croft-dev/croft v1.2.3\n")
	write(t, filepath.Join(top, ".gitignore"), "")
	for _, name := range []string{".gitattributes", "tools/dist/commit.txt"} {
		write(t, filepath.Join(top, name), string(read(t, filepath.Join("..", "..", name))))
	}
	check := func(what, folder, version string, want origin) {
		t.Helper()
		got, err := findOrigin(t.Context(), folder, version)
		if err != nil || got.version != want.version || got.commit != want.commit || !got.date.Equal(want.date) {
			t.Errorf("%s: %v (%v), want %v", what, got, err, want)
		}
	}
	check("files without a history", top, "", origin{"v1.2.3-dev+unknown", "", undated})

	do("init", "--quiet")
	do("add", ".")
	do("commit", "--quiet", "--message", "first")
	said, err := git(t.Context(), top, "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	want := tagged // has the date above
	want.commit = strings.TrimSpace(said)
	want.version = "v1.2.3-dev+" + want.commit[:12]
	check("a commit without a tag", top, "", want)
	archive := unpackSource(t, top)
	check("an archive of it", archive, "", want)

	do("tag", "backend/redis/v1.2.9")
	do("tag", "nightly")
	check("a commit with other tags", top, "", want)
	do("tag", "v1.2.3-rc.1")
	do("tag", "v1.2.3")
	do("tag", "v1.2.2")
	write(t, filepath.Join(top, "new.go"), "package croft\n")
	want.version += ".changed"
	check("a tag, and a new file", top, "", want)
	do("add", ".")
	do("commit", "--quiet", "--message", "second")
	do("checkout", "--quiet", "v1.2.2")
	want.version = "v1.2.3"
	check("a tag", top, "v1.2.3", want)
	check("an archive of it with its version", archive, "v1.2.3", want)

	got, err := findOrigin(t.Context(), top, "")
	if err != nil || !strings.HasPrefix(got.version, "v1.2.3") || strings.Contains(got.version, "dev") {
		t.Errorf("a tag without a version given: %v (%v)", got, err)
	}
	if _, err := findOrigin(t.Context(), top, "1.2.3"); err == nil || !strings.Contains(err.Error(), "not a version") {
		t.Errorf("a version without v: %v", err)
	}
}

// unpackSource unpacks the archive that git makes of a clone.
func unpackSource(t *testing.T, top string) string {
	t.Helper()
	file, folder := filepath.Join(t.TempDir(), "source.tar.gz"), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "git", "-C", top, "archive", "--output="+file, "HEAD")
	cmd.Env = ofThisFolder(cmd.Environ())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git archive: %v\n%s", err, out)
	}
	for name, text := range unpack(t, file) {
		if !strings.HasSuffix(name, "/") && text != "" {
			write(t, filepath.Join(folder, name), text)
		}
	}
	return folder
}
