package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// checkLine fails the test if croft would refuse a command line before it does
// anything.
func checkLine(t *testing.T, args []string) {
	t.Helper()
	a := &app{&cli.App{Stdout: &cli.Sink{W: io.Discard}, Stderr: io.Discard}}
	root := a.rootCommand()
	c, rest, err := root.Find(args)
	switch {
	case err != nil:
	case c == root:
		t.Errorf("croft %q names no command", args)
	default:
		if err = c.ParseFlags(rest); err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err == nil {
			err = c.ValidateRequiredFlags()
		}
	}
	if err != nil {
		t.Errorf("croft %q: %v", args, err)
	}
}

// shellWord is a word of a command line, perhaps with quotes.
var shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)

// shellWords splits a command line, up to the first operator of the shell.
func shellWords(line string) []string {
	var all []string
	for _, w := range shellWord.FindAllString(line, -1) {
		if strings.HasPrefix(w, "#") || strings.HasPrefix(w, ">") || slices.Contains([]string{"|", "||", "&&", ";"}, w) {
			break
		}
		all = append(all, strings.NewReplacer("'", "", `"`, "").Replace(w))
	}
	return all
}

// checkLines checks every line that calls croft, but no comment, and returns
// how many it found.
func checkLines(t *testing.T, text string) (found int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if _, args, is := strings.Cut(line, "croft "); is && !strings.HasPrefix(line, "#") {
			found++
			checkLine(t, shellWords(args))
		}
	}
	return found
}

// TestCroftRefusesNoCommandLineOfTheCrontab: a reader copies them.
func TestCroftRefusesNoCommandLineOfTheCrontab(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/crontab")
	if err != nil {
		t.Fatal(err)
	}
	if found := checkLines(t, string(text)); found != 2 {
		t.Errorf("%d command lines in the crontab", found)
	}
}

// TestTheTimerAndTheCrontabNameOneKey: a job that some machines start by
// systemd and others by cron is done by one of them. In the name of an
// instance, "-" stands for "/".
func TestTheTimerAndTheCrontabNameOneKey(t *testing.T) {
	t.Parallel()
	find := func(file, pattern string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		return string(found[1])
	}
	instance := find("../../deploy/README.md", `systemctl enable --now croft-run@(\S+)\.timer`)
	if key := find("../../deploy/crontab", `croft run (\S+)`); strings.ReplaceAll(instance, "-", "/") != key {
		t.Errorf("the timer's instance is %s, and the crontab's key %s", instance, key)
	}
	if file := find("../../deploy/README.md", `publish\.sh /etc/croft/run/(\S+)`); file != instance {
		t.Errorf("the timer's instance is %s, and its command %s", instance, file)
	}
}

// execStart finds the command line of a unit, with its continued lines.
var execStart = regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/croft ((?:.*\\\n)*.*)$`)

// TestSystemdAcceptsTheUnits also gives their command lines to croft's parser,
// with the values that their comments propose.
func TestSystemdAcceptsTheUnits(t *testing.T) {
	t.Parallel()
	values := strings.NewReplacer("\\\n", " ", "%I", "reports/daily", "%i", "reports-daily",
		"${CROFT_PROXY_LISTEN}", "127.0.0.1:8080", "${CROFT_PROXY_UPSTREAM}", "http://127.0.0.1:9000",
		"${CROFT_PROXY_RESOURCE}", "/orders/{id}", "$CROFT_RUN_FLAGS", "--every 24h --guard /shared/out/today.json",
		"$CROFT_WORK_FLAGS", "--slots 4", "$CROFT_PROXY_FLAGS", "",
		"${CROFT_SERVE_LISTEN}", ":7117", "--metrics 127.0.0.1:9117 $CROFT_SERVE_FLAGS", "--metrics 127.0.0.1:9117",
		"$CROFT_SERVE_FLAGS", "--listen :7117 --cert /etc/croft/server.pem --key /etc/croft/server.key "+
			"--policy /etc/croft/policy")
	program, err := exec.LookPath("true")
	if err != nil {
		t.Skip("needs a program to stand for croft")
	}
	units, err := filepath.Glob("../../deploy/systemd/*")
	if err != nil || len(units) != 6 {
		t.Fatalf("units %v, %v", units, err)
	}
	dir := t.TempDir()
	var services []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(unit)
		if strings.HasSuffix(name, ".service") {
			lines := execStart.FindAllStringSubmatch(string(text), -1)
			if len(lines) != 1 || !strings.Contains(string(text), "\nKillMode=mixed\n") {
				t.Errorf("%s: command lines %q; want one, and TERM for croft alone", name, lines)
				continue
			}
			checkLine(t, shellWords(values.Replace(lines[0][1])))
		}
		services = append(services, filepath.Join(dir, strings.Replace(name, "@", "@daily", 1)))
		// systemd looks whether the program is there.
		text = []byte(strings.ReplaceAll(string(text), "/usr/local/bin/croft", program))
		for _, to := range []string{name, strings.Replace(name, "@", "@daily", 1)} {
			if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	analyze := testenv.Program(t, "systemd-analyze", "systemd")
	verify := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, services...)...)
	out, err := verify.CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// Of 100 points of exposure, systemd calls 50 medium and 20 safe.
	judge := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager", "--threshold=15",
		filepath.Join(dir, "croft-serve-hardened.service"))
	if out, err := judge.CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
