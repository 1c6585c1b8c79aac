package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// built caches the results of Built.
var built struct {
	sync.Mutex
	path map[string]string
	why  map[string]error
}

// Built builds a program of the module tools/NAME into .tools/bin, if it is
// missing or out of date, and returns its path. pkg is "." for the module's own
// program, or the import path of a program that it pins. Servers for tests have
// modules of their own there, so that their dependencies are not Croft's.
//
// If the program cannot be built, Built ends the test with Missing. With -short
// it skips the test: -short promises tests without servers.
func Built(tb testing.TB, name, pkg string) string {
	tb.Helper()
	return BuiltOf(tb, name, name, pkg)
}

// BuiltOf is Built for a further program that the module tools/MODULE pins.
func BuiltOf(tb testing.TB, module, name, pkg string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("testenv: -short starts no servers, and this needs %s", name)
	}
	built.Lock()
	defer built.Unlock()
	if built.path == nil {
		built.path, built.why = map[string]string{}, map[string]error{}
	}
	if built.path[name] == "" && built.why[name] == nil {
		built.path[name], built.why[name] = build(module, name, pkg)
	}
	if err := built.why[name]; err != nil {
		Missing(tb, "%s could not be built from tools/%s (%v); try it there with go build", name, module, err)
	}
	return built.path[name]
}

func build(module, name, pkg string) (string, error) {
	top, err := topWith(filepath.Join("tools", module, "go.mod"))
	if err != nil {
		return "", err
	}
	folder := filepath.Join(top, ".tools", "bin")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(folder, name)
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	// Several test binaries run at once, and all may want it now.
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", path, pkg)
	cmd.Dir = filepath.Join(top, "tools", module)
	cmd.Env = append(os.Environ(), "GOOS=", "GOARCH=", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, tail(out, 400))
	}
	return path, nil
}

// BuildPlain builds the tests of the current package into the file to, without
// the race detector. Processes of such a binary start four times as fast. It is
// for tests that start many of them and check their output. Go keeps the result
// in .tools/plain, under the same name, and builds it again only when it is out
// of date.
//
// The binary is built like a release: with -trimpath, and without C. So the
// scripts run what users run, and the test of tools/dist finds most packages in
// Go's build cache.
func BuildPlain(to string) error {
	return buildPlain(to, filepath.Base(to), ".", "test", "-race=false", "-trimpath", "-ldflags=-s -w", "-c")
}

// BuildCroft builds the program croft into the file to, as BuildPlain builds
// tests. All packages whose tests need the program share the result.
func BuildCroft(to string) error {
	return buildPlain(to, "croft-program", "github.com/croft-dev/croft/cmd/croft",
		"build", "-race=false", "-trimpath", "-ldflags=-s -w", "-buildvcs=false")
}

// buildPlain runs the go command without C. The result is kept in .tools/plain
// under a name.
func buildPlain(to, name, pkg string, args ...string) error {
	top, err := topWith("go.work")
	if err != nil {
		return err
	}
	folder := filepath.Join(top, ".tools", "plain")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	path := filepath.Join(folder, name)
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", path, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", args[0], err, tail(out, 400))
	}
	// A hard link, because the next test run may replace the file.
	if err := os.Link(path, to); err == nil {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return writeProgram(to, content, 0o755)
}

// topWith returns the nearest folder, at or above the current one, that has the
// file. Tests run in the folder of their package.
func topWith(file string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no " + file + " in this folder or above it")
		}
		dir = up
	}
}
