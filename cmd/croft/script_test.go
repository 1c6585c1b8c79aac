package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	signing "github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestMain makes this binary the croft of the scripts. There is one difference:
// a script's home replaces the home of the password database, which no test may
// write to, and its folder etc replaces /etc. Scripts that are not about
// concurrency use a copy without the race detector: see plainCroft.
func TestMain(m *testing.M) {
	home := os.Getenv("SCRIPT_HOME")
	if home != "" {
		cli.SystemConfig = func() string { return filepath.Join(home, "..", "etc", "croft", "croft.toml") }
	}
	if folder := os.Getenv("CROFT_TEST_MCP_SERVER"); folder != "" { // croft mcp started this one
		serveFiles(folder)
		return
	}
	if os.Getenv("CROFT_TEST_MAIN") != "" { // a test started this croft as a real process
		if home != "" {
			cli.HomeDir = func() (string, error) { return home, nil }
		}
		main()
	}
	// Signals ignored at start stay ignored in children. Scripts send INT to
	// croft, also when the tests run in the background of a shell. A signal
	// that is caught here has its default effect in children.
	if base := filepath.Base(os.Args[0]); strings.TrimSuffix(base, ".exe") != "croft" && signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	testscript.Main(withBinaries{m}, map[string]func(){
		"croft": func() {
			cli.HomeDir = func() (string, error) { return home, nil }
			main()
		},
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, scripts(t, "script", func(e *testscript.Env) { e.Setenv("CROFT_STORE", filepath.Join(e.WorkDir, "store")) }))
}

// scripts runs the scripts of a folder of testdata, each with a home of its
// own. Their files are in memory: croft waits half a second for the note of a
// refusal, and on a disk that is busy with the syncs of other tests a store may
// take longer.
func scripts(t *testing.T, folder string, setup func(e *testscript.Env)) testscript.Params {
	t.Helper()
	return testscript.Params{
		Dir:                 filepath.Join("testdata", folder),
		WorkdirRoot:         inMemory(t),
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("SCRIPT_HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("RACE_PATH", e.Getenv("PATH")) // for the command race
			if dir := plainCroft(); dir != "" {
				e.Setenv("PATH", dir+string(filepath.ListSeparator)+e.Getenv("PATH"))
			}
			setup(e)
			e.Setenv("TZ", "UTC")
			// Without this, the race detector keeps every process for a second
			// at its end, to give other goroutines time to race.
			e.Setenv("GORACE", "atexit_sleep_ms=10")
			// A script cannot write down these values.
			e.Setenv("LONG", strings.Repeat("k", 4096))
			e.Setenv("ODD", "reversed\u202etxt")
			e.Setenv("CONTROL", "esc\x1b[31mred")
			return os.MkdirAll(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"race":   race,
			"exits":  exits,
			"await":  await,
			"until":  until,
			"setenv": setenv,
			"tmpfs":  tmpfs,
			"fields": fields,
			"denied": denied,
			"texts":  texts,

			"signkey": signkey,
		},
		Condition: func(condition string) (bool, error) {
			if condition != "root" {
				return false, fmt.Errorf("unknown condition %q", condition)
			}
			if os.Getuid() != 0 && os.Getenv("CI") != "" {
				return false, errors.New("this script needs root, and continuous integration must not leave it out")
			}
			return os.Getuid() == 0, nil
		},
	}
}

// inMemory returns a folder in memory for the folders of scripts, or "" for the
// place that testscript chooses. A process that a script has left may still
// write there at the end. So inMemory ignores what cannot be removed, as
// testscript does.
func inMemory(t *testing.T) string {
	within := testenv.InMemory()
	if within == "" {
		return ""
	}
	dir, err := os.MkdirTemp(within, "") //nolint:usetesting // not where the test's own folders are
	if err != nil {
		return ""
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// race makes a script use the croft with the race detector, for scripts in
// which one croft process does several things at a time.
func race(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: race")
	}
	ts.Setenv("PATH", ts.Getenv("RACE_PATH"))
}

// signkey makes a private key for croft serve: signkey FILE
func signkey(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: signkey FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), signing.NewKey().Private(), 0o600))
}

// exits runs a program and checks its exit code: exits 11 croft acquire k
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		m := regexp.MustCompile(`^exit status (\d+)$`).FindStringSubmatch(err.Error())
		if m == nil {
			ts.Fatalf("%v; want exit code %d", err, want)
		}
		code, _ = strconv.Atoi(m[1])
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// texts prints the texts of a picture, which must be well-formed: texts FILE
func texts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: texts FILE")
	}
	in := xml.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	for element := ""; ; {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		ts.Check(err)
		switch token := token.(type) {
		case xml.StartElement:
			element = token.Name.Local
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); text != "" && element != "style" {
				fmt.Fprintln(ts.Stdout(), text)
			}
		}
	}
}

// await waits until a file matches: await FILE REGEXP
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	re := regexp.MustCompile("(?m)" + args[1])
	for end := time.Now().Add(testenv.Patience); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && re.Match(text) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s does not match %s after %s; it holds:\n%s", args[0], args[1], testenv.Patience, text)
		}
	}
}

// until runs a program until its output matches: until REGEXP PROGRAM ARGS...
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM ARGS...")
	}
	re := regexp.MustCompile("(?m)" + args[0])
	// A start costs time.
	for end := time.Now().Add(testenv.Patience); ; time.Sleep(300 * time.Millisecond) {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if re.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("the output does not match %s after %s", args[0], testenv.Patience)
		}
	}
}

// setenv sets a variable to a file's content, trimmed: setenv NAME FILE
func setenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setenv NAME FILE")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

// denied is exits for a program to which file permissions apply, even if root
// runs the tests: denied CODE PROGRAM ARGS...
func denied(ts *testscript.TestScript, neg bool, args []string) {
	if os.Getuid() == 0 && len(args) > 1 {
		args = append([]string{args[0], "setpriv", "--bounding-set", "-dac_override,-dac_read_search"}, args[1:]...)
	}
	exits(ts, neg, args)
}

// tmpfs mounts a small file system, for full disks: tmpfs DIR SIZE
func tmpfs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tmpfs DIR SIZE")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "mode=0700,size="+args[1], "croft-test", dir).CombinedOutput(); err != nil {
		ts.Fatalf("mount: %v: %s", err, out)
	}
	ts.Defer(func() { _ = exec.Command("umount", "--lazy", dir).Run() })
}
