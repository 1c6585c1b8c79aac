package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAllModulesGetOneVersion tries tools/tidy and tools/release on a small
// workspace: the modules require each other at the new version, go.work ties
// them at it, and each has a tag.
func TestAllModulesGetOneVersion(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: runs the go command many times")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("tools/tidy and tools/release need bash")
	}
	const croft = "github.com/croft-dev/croft"
	top, do := clone(t)
	for _, name := range []string{"tidy", "release"} {
		write(t, filepath.Join(top, "tools", name), string(read(t, filepath.Join("..", name))))
	}
	write(t, filepath.Join(top, "croft.go"), "package croft\n")
	write(t, filepath.Join(top, "go.mod"), "module "+croft+"\n\ngo 1.26\n")
	write(t, filepath.Join(top, "cmd", "croft", "main.go"), "package main\n\nimport _ \""+croft+"\"\n\nfunc main() {}\n")
	write(t, filepath.Join(top, "cmd", "croft", "go.mod"), "module "+croft+"/cmd/croft\n\ngo 1.26\n\nrequire "+croft+" v0.1.0\n")
	write(t, filepath.Join(top, "bench", "go.mod"), "module "+croft+"/bench\n\ngo 1.26\n\nrequire "+croft+" v0.1.0\n\nreplace "+croft+" => ../\n")
	write(t, filepath.Join(top, "go.work"), "go 1.26\n\nuse (\n\t.\n\t./cmd/croft\n)\n\nreplace (\n\t"+
		croft+" v0.1.0 => ./\n\t"+croft+"/cmd/croft v0.1.0 => ./cmd/croft\n)\n")
	script := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", args...)
		cmd.Dir = top
		cmd.Env = append(ofThisFolder(os.Environ()), "GOPROXY=off", "GOFLAGS=", "GOWORK=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	refused := func(what, version, why string) {
		t.Helper()
		if out, err := script("tools/release", version); err == nil || !strings.Contains(out, why) {
			t.Errorf("%s: %v, said %s, want %q", what, err, out, why)
		}
	}
	do("init", "--quiet")
	refused("files that were never committed", "v0.2.0", "commit them first")
	do("add", ".")
	do("commit", "--quiet", "--message", "first")
	refused("no version", "0.2.0", "not a version")
	refused("modules that require another version", "v0.2.0", "cmd/croft/go.mod requires another version")

	if out, err := script("tools/tidy", "v0.2.0"); err != nil {
		t.Fatalf("tools/tidy: %v\n%s", err, out)
	}
	for _, file := range []string{"cmd/croft/go.mod", "bench/go.mod", "go.work"} {
		text := string(read(t, filepath.Join(top, file)))
		if strings.Contains(text, "v0.1.0") || !strings.Contains(text, croft+" v0.2.0") {
			t.Errorf("%s is not at the new version:\n%s", file, text)
		}
	}
	if text := string(read(t, filepath.Join(top, "cmd", "croft", "go.mod"))); strings.Contains(text, "replace") {
		t.Errorf("go install would refuse the command:\n%s", text)
	}
	do("add", ".")
	do("commit", "--quiet", "--message", "second")
	if out, err := script("tools/release", "v0.2.0"); err != nil {
		t.Fatalf("tools/release: %v\n%s", err, out)
	}
	tags, err := git(t.Context(), top, "tag", "--points-at", "HEAD")
	if err != nil || tags != "cmd/croft/v0.2.0\nv0.2.0\n" {
		t.Errorf("the tags are %q (%v)", tags, err)
	}
	refused("a version that was tagged before", "v0.2.0", "never tagged twice")
}
