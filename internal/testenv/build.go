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

// built remembers what this test binary has built.
var built struct {
	sync.Mutex
	path map[string]string
	why  map[string]error
}

// Built is a program of the module tools/NAME, built into .tools/bin when it is missing or out of date: the module's own (pkg is ".") or one that it pins (pkg is an import path). Servers that
// tests need have modules of their own there, so that what they are made of is no dependency of Croft. It ends the test by Missing if the program cannot be built, and with -short, which promises tests without servers.
func Built(tb testing.TB, name, pkg string) string {
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
		built.path[name], built.why[name] = build(name, pkg)
	}
	if err := built.why[name]; err != nil {
		Missing(tb, "%s could not be built from tools/%s (%v); try it there with go build", name, name, err)
	}
	return built.path[name]
}

func build(name, pkg string) (string, error) {
	top, err := topWith(filepath.Join("tools", name, "go.mod"))
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
	// Several test binaries run at once, and all of them may want it now.
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", path, pkg)
	cmd.Dir = filepath.Join(top, "tools", name)
	cmd.Env = append(os.Environ(), "GOOS=", "GOARCH=", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, tail(out, 400))
	}
	return path, nil
}

// BuildPlain builds the tests of the package in the present folder, without
// the race detector, into the file to. Processes of such a binary start four
// times as fast. It serves where a test starts many of them and looks at what
// they print. Go keeps the result in .tools/plain, under the same name, and
// builds it again only when it is out of date.
//
// The binary is built as a release is: with -trimpath, and without C. So
// the scripts run what users run, and the test of tools/dist finds most of
// what it builds in Go's build cache.
func BuildPlain(to string) error {
	top, err := topWith("go.work")
	if err != nil {
		return err
	}
	folder := filepath.Join(top, ".tools", "plain")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	path := filepath.Join(folder, filepath.Base(to))
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-race=false", "-trimpath", "-ldflags=-s -w", "-c", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c: %w: %s", err, tail(out, 400))
	}
	// The next run of the tests may build another one in its place.
	if err := os.Link(path, to); err == nil {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return writeProgram(to, content, 0o755)
}

// topWith finds the folder, at or above the present one, that has a file in it. Tests run in the folder of their package.
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
