package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// named finds the name that a script gives to a command in the background.
var named = regexp.MustCompile(`&([a-z0-9]+)&$`)

// redirected finds the files that a shell command writes to. A link like 2>&1
// and a device are none.
var redirected = regexp.MustCompile(`>>? *([^\s&>'"()|;]+)`)

// typescript finds the file of script(1), which keeps what its terminal shows.
var typescript = regexp.MustCompile(`exec script .*' (\S+) &`)

// backgroundClashes says which names and files the commands in the background
// of a script share. await could find there what an earlier command has
// written.
func backgroundClashes(script string) (clashes []string) {
	var used []string
	claim := func(what string) {
		if slices.Contains(used, what) {
			clashes = append(clashes, what)
		}
		used = append(used, what)
	}
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		m := named.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case m != nil:
			claim("the name " + m[1])
		case !strings.HasSuffix(line, " &"):
			continue
		}
		var files []string
		for _, file := range slices.Concat(redirected.FindAllStringSubmatch(line, -1), typescript.FindAllStringSubmatch(line, -1)) {
			if !strings.HasPrefix(file[1], "/dev/") && !slices.Contains(files, file[1]) {
				files = append(files, file[1])
			}
		}
		for _, file := range files {
			claim("the file " + file)
		}
	}
	return clashes
}

// TestBackgroundCommandsOfAScriptShareNothing: each has a name and output files
// of its own.
func TestBackgroundCommandsOfAScriptShareNothing(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join("testdata", "*", "*.txtar"))
	if err != nil || len(scripts) < 50 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, clash := range backgroundClashes(string(text)) {
			t.Errorf("%s: two commands in the background share %s", path, clash)
		}
	}
}

// TestSharedOutputsOfBackgroundCommandsAreFound checks the check.
func TestSharedOutputsOfBackgroundCommandsAreFound(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"exec sh -c 'exec croft serve 2> err' &one&\nexec sh -c 'exec croft serve 2> err' &two&\n":    "[the file err]",
		"exec sh -c 'exec croft serve > out 2> err' &one&\nexec sh -c 'exec croft serve 2>err' &two&": "[the file err]",
		"exec croft watch &watch&\nkill watch\nwait watch\nexec croft watch &watch&\n":                "[the name watch]",
		"[linux] exec script -q -c 'croft watch' page &a&\nexec sh -c 'croft watch >page' &b&\n":      "[the file page]",
		"croft work run q -- true 2>>err &\ncroft work run q -- true 2>>err &\n":                      "[the file err]",
		"exec sh -c 'croft a > out' \nexec sh -c 'croft b > out 2>&1' &b&\n# croft c > out &\n":       "[]",
		"exec sh -c 'croft a >/dev/null 2>err' &a&\nexec sh -c 'croft b >/dev/null 2>err2' &b&\n":     "[]",
	} {
		if got := fmt.Sprint(backgroundClashes(script)); got != want {
			t.Errorf("%s\nfound %s, want %s", script, got, want)
		}
	}
}
