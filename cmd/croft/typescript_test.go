//go:build linux && typescript

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestTypeScriptClient compiles the client for Node, and runs its own tests
// against this croft. It works in a copy, so that several runs do not meet. It
// runs by "make typescript": it has failed on a machine that was busy with all
// other tests, and nobody knows why yet.
func TestTypeScriptClient(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes and real TTLs take a while")
	}
	t.Parallel()
	node := testenv.Program(t, "node", "nodejs")
	npm := testenv.Program(t, "npm", "npm")
	var major, minor int
	version, err := exec.Command(node, "--version").Output()
	if _, scanErr := fmt.Sscanf(string(version), "v%d.%d", &major, &minor); err != nil || scanErr != nil {
		t.Fatalf("node --version: %q, %v, %v", version, err, scanErr)
	}
	if major < 20 || major == 20 && minor < 9 {
		testenv.Missing(t, "node is %s; install node 20.9 or newer", strings.TrimSpace(string(version)))
	}

	dir := filepath.Join(t.TempDir(), "typescript")
	copySources(t, typescriptClient, dir)
	env := append(withoutCroft(os.Environ()), "CROFT_BIN="+startable(t))
	run := func(args ...string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // detects hanging, not slowness
		defer cancel()
		c := exec.CommandContext(ctx, npm, args...)
		c.Dir, c.Env = dir, env
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
		c.WaitDelay = 10 * time.Second
		return c.CombinedOutput()
	}
	if out, err := run("ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"); err != nil {
		if strings.Contains(string(out), "EUSAGE") { // package.json and its lock differ
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
		testenv.Missing(t, "the TypeScript compiler could not be installed (%v: %s); npm ci needs its registry", err, out)
	}
	if out, err := run("test"); err != nil {
		t.Errorf("npm test: %v\n%s", err, out)
	}
}

// startable writes a script that is a croft for processes of any language. It
// reads no configuration of this machine.
func startable(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if dir := plainCroft(); dir != "" {
		self = filepath.Join(dir, "croft")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "croft")
	text := fmt.Sprintf("#!/bin/sh\nCROFT_TEST_MAIN=1 SCRIPT_HOME=%q exec %q \"$@\"\n", dir, self)
	testenv.WriteProgram(t, path, []byte(text), 0o700)
	return path
}

// withoutCroft leaves the settings of croft out of an environment.
func withoutCroft(env []string) []string {
	var rest []string
	for _, e := range env {
		if !strings.HasPrefix(e, "CROFT_") {
			rest = append(rest, e)
		}
	}
	return rest
}

// copySources copies a package, without the files that npm and tsc make in it.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "node_modules" || d.Name() == "dist" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
