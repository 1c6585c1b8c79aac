// Package patch builds broken variants of the code that ships. A variant is one
// change of one file. The go command puts it in the file's place with an
// overlay, so the code has no hooks for it.
package patch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Patch is one change of one file.
type Patch struct {
	// File is the path below the top of the repository.
	File string
	// Old occurs exactly once in the file. New takes its place.
	Old, New string
}

// root returns the top of the repository: the folder of go.work.
func root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	if err != nil {
		return "", fmt.Errorf("asking for the workspace: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if !filepath.IsAbs(file) {
		return "", fmt.Errorf("GOWORK is %q: run this in the repository, with its go.work", file)
	}
	return filepath.Dir(file), nil
}

// text returns the file with the change.
func (p Patch) text(root string) (string, error) {
	old, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p.File)))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(old), p.Old); n != 1 || p.Old == p.New {
		return "", fmt.Errorf(
			"%s has the text %d times, and not once; bring the patch up to date: %q", p.File, n,
			p.Old,
		)
	}
	return strings.Replace(string(old), p.Old, p.New, 1), nil
}

// Check reports whether the patch fits the code.
func (p Patch) Check(ctx context.Context) error {
	top, err := root(ctx)
	if err != nil {
		return err
	}
	_, err = p.text(top)
	return err
}

// command returns a go command on the changed code. It writes the overlay into
// dir.
func (p Patch) command(ctx context.Context, dir, verb string, args ...string) (*exec.Cmd, error) {
	top, err := root(ctx)
	if err != nil {
		return nil, err
	}
	text, err := p.text(top)
	if err != nil {
		return nil, err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace := map[string]map[string]string{"Replace": {filepath.Join(top, filepath.FromSlash(p.File)): changed}}
	list, err := json.Marshal(replace)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "go", append([]string{verb, "-overlay", overlay}, args...)...)
	c.Dir = top
	return c, nil
}

// Build builds a program of the changed code into dir and returns its path.
// set is a string variable and its value, as the linker's flag -X takes it.
func (p Patch) Build(ctx context.Context, dir, pkg, set string) (string, error) {
	program := filepath.Join(dir, filepath.Base(pkg))
	c, err := p.command(ctx, dir, "build", "-ldflags", "-X "+set, "-o", program, "./"+pkg)
	if err != nil {
		return "", err
	}
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the changed %s: %w: %s", p.File, err, out)
	}
	return program, nil
}

// Fails runs one test, written as "package.Test", on the changed code. It
// reports whether the test fails. Code that does not compile is an error.
func (p Patch) Fails(ctx context.Context, dir, test string) (bool, error) {
	at := strings.LastIndexByte(test, '.')
	pkg, name := test[:at], test[at+1:]
	c, err := p.command(ctx, dir, "test", "-count=1", "-run", "^"+regexp.QuoteMeta(name)+"$", "./"+pkg)
	if err != nil {
		return false, err
	}
	out, err := c.CombinedOutput()
	switch {
	case strings.Contains(string(out), "--- FAIL: "+name):
		return true, nil
	case strings.Contains(string(out), "no tests to run"):
		return false, fmt.Errorf("there is no test %s", test)
	case err != nil:
		return false, fmt.Errorf("testing the changed %s: %w: %s", p.File, err, out)
	}
	return false, nil
}
