package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// recording is a page whose ```console blocks show commands and what they
// print. A command begins with "$ " and goes on in lines that begin with "> ".
type recording struct {
	text     []string // text[i] stands before commands[i]; the last is the rest
	commands []string
	shown    []string // what the page says that commands[i] prints
}

func parseRecording(page string) recording {
	var r recording
	var text strings.Builder
	console, command := false, false
	for line := range strings.Lines(page) {
		switch {
		case !console || line == "```\n":
			console, command = line == "```console\n", false
		case strings.HasPrefix(line, "$ "):
			r.text = append(r.text, text.String()+"$ ")
			r.commands = append(r.commands, line[2:])
			r.shown = append(r.shown, "")
			text.Reset()
			command = true
			continue
		case command && r.shown[len(r.shown)-1] == "" && strings.HasPrefix(line, "> "):
			r.commands[len(r.commands)-1] += line[2:]
			continue
		default:
			r.shown[len(r.shown)-1] += line
			continue
		}
		text.WriteString(line)
	}
	r.text = append(r.text, text.String())
	return r
}

// script runs all commands in one shell. A line with mark and the number of a
// command stands before what that command prints.
func (r recording) script(mark string) string {
	var s strings.Builder
	for i, command := range r.commands {
		// The command may look at $? of the one before.
		fmt.Fprintf(&s, "{ code=$?; echo; echo '%s %d'; (exit $code); }\n%s", mark, i, command)
	}
	return s.String()
}

// with returns the page with what the commands have printed.
func (r recording) with(printed []string) string {
	var page strings.Builder
	for i, command := range r.commands {
		page.WriteString(r.text[i] + strings.ReplaceAll(strings.TrimSuffix(command, "\n"), "\n", "\n> ") + "\n" + printed[i])
	}
	return page.String() + r.text[len(r.text)-1]
}

// variable lists the parts of a recording that differ from run to run.
var variable = []struct {
	is   *regexp.Regexp
	what string
}{
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "GRANT"},
	{regexp.MustCompile(`\b\d{16}\b`), "TOKEN"},
	{regexp.MustCompile(`-?\b(\d+(\.\d+)?(ns|µs|ms|h|m|s))+\b`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "CLOCK"},
	{regexp.MustCompile(` +`), " "},
}

func alike(s string) string {
	for _, v := range variable {
		s = v.is.ReplaceAllString(s, v.what)
	}
	return s
}

const firstMinutes = "../../docs/first-ten-minutes.md"

// TestTheFirstTenMinutesBeginWithAnInstallation: the command of the page makes
// a croft that runs.
func TestTheFirstTenMinutesBeginWithAnInstallation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it links a croft")
	}
	page, err := os.ReadFile(firstMinutes)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Install it\n")
	_, block, found := strings.Cut(section, "\n```sh\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !closed {
		t.Fatal("the page has no block that installs croft")
	}
	if _, err := exec.LookPath("go"); err != nil {
		testenv.Missing(t, "there is no go command to install croft with: %v", err)
	}
	bin := t.TempDir()
	c := exec.Command("sh", "-ec", block)
	c.Dir = filepath.Join("..", "..")
	// Built as testenv.BuildPlain does, Go's build cache has most packages.
	c.Env = append(os.Environ(), "GOBIN="+bin, "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false '-ldflags=-s -w'")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s%v: %s", block, err, out)
	}
	out, err := exec.Command(filepath.Join(bin, "croft"), "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "croft ") {
		t.Errorf("the installed croft prints %q: %v", out, err)
	}
}

// TestTheFirstTenMinutesAreAsThePageShows: set UPDATE_SCRIPTS to record them
// again.
func TestTheFirstTenMinutesAreAsThePageShows(t *testing.T) {
	t.Parallel()
	const mark = "@@ command"
	page, err := os.ReadFile(firstMinutes)
	if err != nil {
		t.Fatal(err)
	}
	r := parseRecording(string(page))
	if len(r.commands) < 15 || r.with(r.shown) != string(page) {
		t.Fatalf("%d commands on the page, which read back is\n%s", len(r.commands), r.with(r.shown))
	}
	dir := t.TempDir()
	script := "exec bash record.sh\ncompare\n-- tour.sh --\n" + r.script(mark) + "-- record.sh --\nexec bash tour.sh > printed 2>&1\n"
	if err := os.WriteFile(filepath.Join(dir, "minutes.txtar"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	p := scripts(t, "", func(*testscript.Env) {})
	p.Dir = dir
	p.Cmds["compare"] = func(ts *testscript.TestScript, _ bool, _ []string) {
		all := strings.ReplaceAll(ts.ReadFile("printed"), ts.MkAbs("."), "/home/ada")
		printed := strings.Split(all, "\n"+mark+" ")[1:]
		if len(printed) != len(r.commands) {
			ts.Fatalf("%d of %d commands ran:\n%s", len(printed), len(r.commands), all)
		}
		differs := false
		for i := range printed {
			_, printed[i], _ = strings.Cut(printed[i], "\n")
			if alike(printed[i]) != alike(r.shown[i]) {
				differs = true
				ts.Logf("%sprints\n%sthe page shows\n%s", r.commands[i], printed[i], r.shown[i])
			}
		}
		if !differs {
			return
		}
		if os.Getenv("UPDATE_SCRIPTS") == "" {
			ts.Fatalf("the page does not show what happens")
		}
		ts.Check(os.WriteFile(firstMinutes, []byte(r.with(printed)), 0o600))
	}
	testscript.Run(t, p)
}
