package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

func TestTheManualIsThatOfTheCommands(t *testing.T) {
	fresh, kept := t.TempDir(), filepath.Join("..", "..", "docs", "man")
	var stderr strings.Builder
	if code := Main([]string{"man", fresh}, strings.NewReader(""), &strings.Builder{}, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	want, have := pages(t, fresh), pages(t, kept)
	if !slices.Equal(want, have) {
		t.Fatalf("docs/man has the pages %v, want %v: run make generate, and remove what is too much", have, want)
	}
	for _, name := range want {
		w, err := os.ReadFile(filepath.Join(fresh, name))
		if err != nil {
			t.Fatal(err)
		}
		h, err := os.ReadFile(filepath.Join(kept, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(w) != string(h) {
			t.Errorf("docs/man/%s is out of date: run make generate", name)
		}
	}
}

// TestTheManualShowsFlagsAsTheHelpDoes: with the kind of value, and only those
// defaults that say something.
func TestTheManualShowsFlagsAsTheHelpDoes(t *testing.T) {
	dir := t.TempDir()
	if code := Main([]string{"man", dir}, strings.NewReader(""), &strings.Builder{}, &strings.Builder{}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, name := range pages(t, dir) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, `\fP=`) || strings.Contains(line, `\fP[=`) {
				t.Errorf("%s: %s", name, line)
			}
		}
		for _, want := range map[string][]string{
			"croft-run.1": {
				"\\fB--ttl\\fP \\fIduration\\fP\n\thow long others wait if this machine dies; renewed at a third of it (default 1m0s)\n",
				"\\fB--guard\\fP \\fItarget\\fP\n", "\\fB-q\\fP, \\fB--quiet\\fP\n",
			},
		}[name] {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
}

func pages(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("%v: run make generate", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestEveryCommandSaysWhatItDoesAndShowsHow(t *testing.T) {
	a := &app{&cli.App{Stdout: &cli.Sink{W: &strings.Builder{}}, Stderr: &strings.Builder{}}}
	root := a.rootCommand()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Hidden || c.Name() == "help" {
			return
		}
		if c.Short == "" || !strings.HasPrefix(c.Example, "  ") {
			t.Errorf("%s: it needs a short description and examples, indented by two", c.CommandPath())
		}
		if c.Parent() == root && c.GroupID == "" {
			t.Errorf("%s belongs to no group of the help text", c.CommandPath())
		}
		if c.Args == nil && c != root {
			t.Errorf("%s does not check its arguments", c.CommandPath())
		}
	}
	walk(root)
}
