package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestEveryModuleIsHunted: without packages on the command line, those of all
// modules in go.work are found, and those of bench, which is not in it.
func TestEveryModuleIsHunted(t *testing.T) {
	plant(t)
	t.Setenv("GOWORK", "")
	for name, text := range map[string]string{
		"go.work":            "go 1.26\n\nuse (\n\t.\n\t./below\n)\n",
		"below/go.mod":       "module planted/below\n\ngo 1.26\n",
		"below/in_test.go":   "package below\n",
		"below/a/in_test.go": "package a\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	top, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for want, patterns := range map[string][]string{
		"./good": nil, "./below": nil, "./below/a": {"./below/..."}, "./bench/sub": nil,
	} {
		found, err := list(t.Context(), top, patterns)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(found, func(p *pkg) bool { return p.name == want }) {
			t.Errorf("%s is not found with %q", want, patterns)
		}
	}
}
