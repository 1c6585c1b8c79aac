// Package testenv gives tests real servers: on free ports of the loopback
// interface, in temporary folders, and only for the time of the test.
//
// If a program is missing, testenv installs it where it may (as root on
// Debian). Otherwise it skips the tests that need it, with a message. With
// CI=true these tests fail instead, because an unchecked promise is no promise.
//
// Some servers are shared by all tests of a binary. A mutex guards each shared
// server, and the first test starts it. A shared server outlives its first test
// and dies with the binary. Each test uses keys, buckets or databases of its
// own.
//
// Each server process has a goroutine that starts it and waits for it
// ([Process]). The goroutine keeps its thread: on Linux the kernel kills the
// server when that thread ends, so no server outlives the test binary.
// Process.mu guards the current process, which changes with a restart.
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

// Patience is the limit for everything that a server must do soon: start, stop,
// answer. It detects hanging, not slowness.
const Patience = time.Minute

// Missing ends a test whose server or tool is missing. With CI=true the test
// fails, otherwise it is skipped with the reason.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	why := fmt.Sprintf(format, args...)
	if os.Getenv("CI") == "true" {
		tb.Fatalf("testenv: %s", why)
	}
	tb.Skipf("testenv: NOT CHECKED: %s", why)
}

// NeedRoot skips a test that only root can run, because it acts as several
// users. Under CI=true it fails instead.
func NeedRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		Missing(tb, "this test needs root, to act as several users")
	}
}

// programs caches the results of Program, so that a test binary installs
// nothing twice.
var programs struct {
	sync.Mutex
	found map[string]string
	why   map[string]error
}

// Program finds a program on the PATH or in one of the folders, and installs
// its Debian package if it is in none. If the program cannot be had, it ends
// the test with Missing. With -short it skips the test: -short promises tests
// without servers.
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

// Package installs a Debian package without a program, such as a library of
// Python, unless there returns nil. If the package cannot be had, it ends the
// test with Missing. With -short it skips the test.
func Package(tb testing.TB, debianPackage string, there func() error) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("testenv: -short installs nothing, and this needs %s", debianPackage)
	}
	programs.Lock()
	defer programs.Unlock()
	if there() == nil {
		return
	}
	err := install(debianPackage)
	if err == nil {
		err = there()
	}
	if err != nil {
		Missing(tb, "the package %s is not here and could not be installed (%v); install it", debianPackage, err)
	}
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
	// A fresh container has no package lists, and old lists name packages that
	// are gone.
	if err := aptGet("update"); err != nil {
		return err
	}
	return aptGet("install", "-y", "--no-install-recommends", debianPackage)
}

func aptGet(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// Another test binary may install the same package now, so wait for the
	// lock.
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=240"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, tail(out, 400))
	}
	return nil
}

func tail(out []byte, most int) []byte { return out[max(0, len(out)-most):] }

// Eventually repeats try until it succeeds. When Patience is over, it fails the
// test with the last error. It tries less and less often: a try may be many
// requests, and other tests need the processor.
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
