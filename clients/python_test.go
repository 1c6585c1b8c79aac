package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestPython runs the tests of the client for Python over both transports, one
// file of them per process, and mypy over all of it.
func TestPython(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes and real TTLs take a while")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the tests stop and kill processes as Unix does")
	}
	t.Parallel()
	python := debianPython(t)
	mypy := testenv.Program(t, "mypy", "mypy")
	testenv.Program(t, "openssl", "openssl")
	env := append(environment(t), "CROFT_TEST_POSTGRES="+testenv.Postgres(t).Database(t), "PYTHONDONTWRITEBYTECODE=1")
	run := func(t *testing.T, transport, name string, args ...string) {
		t.Parallel()
		c := exec.Command(name, args...)
		c.Dir, c.Env = "python", append(slices.Clip(env), "CROFT_TEST_TRANSPORT="+transport)
		out, err := c.CombinedOutput()
		switch {
		case err != nil:
			t.Errorf("%s: %v\n%s", strings.Join(c.Args, " "), err, out)
		case strings.Contains(string(out), "NOT CHECKED"):
			testenv.Missing(t, "%s", out)
		}
	}
	files, err := filepath.Glob(filepath.Join("python", "tests", "test_*.py"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no tests: %v", err)
	}
	only := map[string]string{ // the others run over both
		"tests.test_package": "croft", "tests.test_recipes": "croft", "tests.test_server": "server",
	}
	for _, file := range files {
		module := "tests." + strings.TrimSuffix(filepath.Base(file), ".py")
		for _, transport := range []string{"croft", "server"} {
			if alone := only[module]; alone != "" && alone != transport {
				continue
			}
			t.Run(transport+"/"+module, func(t *testing.T) { run(t, transport, python, "-m", "unittest", "-v", module) })
		}
	}
	t.Run("types", func(t *testing.T) {
		run(t, "", mypy, "--cache-dir", filepath.Join("..", "..", ".tools", "mypy"))
	})
}

// debianPython finds the system's Python, to which the libraries in packages
// belong, and those libraries: psycopg, and what makes an empty environment.
func debianPython(t *testing.T) string {
	t.Helper()
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		python = testenv.Program(t, "python3", "python3")
	}
	for debianPackage, modules := range map[string]string{
		"python3-psycopg": "psycopg", "python3-venv": "venv, ensurepip",
	} {
		testenv.Package(t, debianPackage, func() error {
			if out, err := exec.Command(python, "-c", "import "+modules).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	return python
}
