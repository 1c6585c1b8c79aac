package testenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// NPM installs the packages that the lock file of a folder names, each with its
// hash. It returns a folder that has them and the files of the first. No script
// of a package runs. The result is kept in .tools/npm until a file changes.
//
// If the packages cannot be had, it ends the test with Missing. With -short it
// skips the test.
func NPM(tb testing.TB, folder string) string {
	tb.Helper()
	npm := Program(tb, "npm", "npm")
	path, err := installed(npm, folder)
	if err != nil {
		Missing(tb, "npm ci in %s: %v; it needs its registry", folder, err)
	}
	return path
}

func installed(npm, folder string) (string, error) {
	top, err := topWith("go.work")
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	sum, files := sha256.New(), map[string][]byte{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return "", err
		}
		files[e.Name()] = text
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", e.Name(), len(text), text) // a hash takes everything
	}
	path := filepath.Join(top, ".tools", "npm", filepath.Base(folder)+"-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	whole := filepath.Join(path, "installed")
	if _, err := os.Stat(whole); err == nil {
		return path, nil
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(path, name), text, 0o644); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
	cmd.Dir = path
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, tail(out, 400))
	}
	return path, os.WriteFile(whole, nil, 0o644)
}
