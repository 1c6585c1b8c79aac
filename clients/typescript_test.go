//go:build linux

package clients

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestTypeScript compiles the client for Node, and runs its own tests against
// this croft, over both transports. It works in a copy, so that several runs do
// not meet.
func TestTypeScript(t *testing.T) {
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

	dir := filepath.Join(testenv.Memory(t), "typescript")
	copySources(t, "typescript", dir)
	env := environment(t)
	testenv.Program(t, "openssl", "openssl")
	run := func(t *testing.T, transport string, args ...string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // detects hanging, not slowness
		defer cancel()
		c := exec.CommandContext(ctx, npm, args...)
		c.Dir, c.Env = dir, append(slices.Clip(env), "CROFT_TEST_TRANSPORT="+transport)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
		c.WaitDelay = 10 * time.Second
		return c.CombinedOutput()
	}
	if out, err := run(t, "", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"); err != nil {
		if strings.Contains(string(out), "EUSAGE") { // package.json and its lock differ
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
		testenv.Missing(t, "the TypeScript compiler could not be installed (%v: %s); npm ci needs its registry", err, out)
	}
	if out, err := run(t, "", "run", "build"); err != nil {
		t.Fatalf("npm run build: %v\n%s", err, out)
	}
	for _, transport := range []string{"croft", "server"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			if out, err := run(t, transport, "run", "tests"); err != nil {
				t.Errorf("npm run tests: %v\n%s", err, out)
			}
		})
	}
}

// TestTypeScriptHasATestForEveryRow compares the names of its tests with
// conformance.md.
func TestTypeScriptHasATestForEveryRow(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"43": "the package has no helpers for SQL",
		"44": "the package has no helpers for SQL",
		"62": "Node cannot fork without starting another program",
	}
	page, err := os.ReadFile("conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("typescript", "test", "*.ts"))
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*test\("(\d\d) `).FindAllSubmatch(text, -1) {
			tested[string(m[1])] = true
		}
	}
	rows := regexp.MustCompile(`(?m)^\| (\d\d) \| (.*) \|$`).FindAllSubmatch(page, -1)
	if len(rows) < 40 || len(tested) < 40 {
		t.Fatalf("found %d rows and tests for %d", len(rows), len(tested))
	}
	for _, row := range rows {
		number := string(row[1])
		switch why := elsewhere[number]; {
		case tested[number] && why != "":
			t.Errorf("row %s is tested, although %s", number, why)
		case !tested[number] && why == "":
			t.Errorf("no test for row %s: %s", number, row[2])
		}
		delete(tested, number)
	}
	for number := range tested {
		t.Errorf("there are tests for row %s, which the page does not have", number)
	}
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
