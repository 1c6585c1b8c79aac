// Package testenv gives tests the real servers they need: on free ports of the loopback interface, in temporary folders, gone when the test is.
//
// A program that is missing is installed where that can be done without asking (as root on Debian). Where it cannot, the tests that need it are skipped, loudly; under
// CI=true they fail, because a promise nobody has checked is none.
package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Patience bounds everything that a server must do soon: start, stop, answer. It is a bound on hanging, not on speed.
const Patience = time.Minute

// Missing says that a test cannot have what it needs: a failure under CI=true, otherwise a skip that says why.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	why := fmt.Sprintf(format, args...)
	if os.Getenv("CI") == "true" {
		tb.Fatalf("testenv: %s", why)
	}
	tb.Skipf("testenv: NOT CHECKED: %s", why)
}

// programs remembers what was looked for, so that a test binary installs nothing twice.
var programs struct {
	sync.Mutex
	found map[string]string
	why   map[string]error
}

// Program finds a program on the PATH or in one of some folders, and installs its Debian package if it is in none. It ends the test by Missing if the
// program cannot be had, and with -short, which promises tests without servers.
func Program(tb testing.TB, name, debianPackage string, folders ...string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("testenv: -short starts no servers, and this needs %s", name)
	}
	programs.Lock()
	defer programs.Unlock()
	if programs.found == nil {
		programs.found, programs.why = map[string]string{}, map[string]error{}
	}
	if programs.found[name] == "" && programs.why[name] == nil {
		programs.found[name], programs.why[name] = program(name, debianPackage, folders)
	}
	if err := programs.why[name]; err != nil {
		Missing(tb, "%s is not here and could not be installed (%v); install the package %s", name, err, debianPackage)
	}
	return programs.found[name]
}

func program(name, debianPackage string, folders []string) (string, error) {
	if path, ok := find(name, folders); ok {
		return path, nil
	}
	if err := install(debianPackage); err != nil {
		return "", err
	}
	if path, ok := find(name, folders); ok {
		return path, nil
	}
	return "", fmt.Errorf("the package %s has no %s", debianPackage, name)
}

func find(name string, folders []string) (string, bool) {
	if path, err := exec.LookPath(name); err == nil {
		return path, true
	}
	for _, pattern := range folders {
		matches, _ := filepath.Glob(filepath.Join(pattern, name))
		for _, path := range matches {
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				return path, true
			}
		}
	}
	return "", false
}

func install(debianPackage string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("not root")
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil {
		return fmt.Errorf("not on Debian")
	}
	if err := aptGet("install", "-y", "--no-install-recommends", debianPackage); err == nil {
		return nil
	}
	// A fresh container has no lists of packages, and old lists name packages
	// that are gone.
	if err := aptGet("update"); err != nil {
		return err
	}
	return aptGet("install", "-y", "--no-install-recommends", debianPackage)
}

func aptGet(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// Another test binary may be installing the same at this moment.
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=240"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, tail(out, 400))
	}
	return nil
}

func tail(out []byte, most int) []byte { return out[max(0, len(out)-most):] }

// Eventually tries something until it succeeds, and fails the test with its last
// error when Patience is over. It tries less and less often: a try may be many
// requests, and the tests beside this one need the processor.
func Eventually(tb testing.TB, what string, try func() error) {
	tb.Helper()
	var err error
	pause := 5 * time.Millisecond
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(pause) {
		if err = try(); err == nil {
			return
		}
		pause = min(pause*3/2, 100*time.Millisecond)
	}
	tb.Fatalf("testenv: %s: not within %s: %v", what, Patience, err)
}
