package house

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostModules bounds the build list of a program that imports the client and
// Redis, the program included.
const mostModules = 20

// workFile is go.work, and goMod is a go.mod, as the go command prints them.
type (
	workFile struct {
		Use     []struct{ DiskPath string }
		Replace []replaced
	}
	goMod struct {
		Module  struct{ Path string }
		Require []version
		Replace []replaced
	}
	replaced struct{ Old, New version }
	version  struct{ Path, Version string }
)

// own reports whether a module is one of this repository.
func (v version) own() bool { return inside(v.Path) }

// looseModules reports what keeps the modules in go.work from being released
// together: requirements of the root that others would have to take along,
// replace directives, and versions that differ. It also reports modules that
// go.work leaves out: no tool would look at them.
func looseModules(top string) ([]string, error) {
	var work workFile
	if err := goPrints(&work, top, "work", "edit", "-json"); err != nil {
		return nil, err
	}
	found, err := work.leftOut(top)
	if err != nil {
		return nil, err
	}
	one := ""                      // the version of all modules here
	others := map[string]version{} // the version of each module elsewhere
	for _, use := range work.Use {
		dir := filepath.ToSlash(filepath.Clean(use.DiskPath))
		var m goMod
		if err := goPrints(&m, filepath.Join(top, dir), "mod", "edit", "-json"); err != nil {
			return nil, err
		}
		say := func(format string, args ...any) {
			found = append(found, dir+"/go.mod: "+fmt.Sprintf(format, args...))
		}
		if want := strings.TrimSuffix(module+"/"+dir, "/."); m.Module.Path != want {
			say("the module is %s; go.work and tools/tidy expect %s", m.Module.Path, want)
		}
		for _, r := range m.Replace {
			say("replaces %s; go.work does that, and go install refuses a command with replace directives", r.Old.Path)
		}
		for _, r := range m.Require {
			if other, ok := others[r.Path]; ok && other != r && !r.own() {
				say("requires %s %s and another module %s; run go work sync, then tools/tidy", r.Path, r.Version, other.Version)
			}
			others[r.Path] = r
			switch {
			case dir == "." && !strings.HasPrefix(r.Path, "golang.org/x/") && r.Path != "pgregory.net/rapid":
				say("requires %s; every user of Croft would have it in the build list", r.Path)
			case r.own() && one == "":
				one = r.Version
			case r.own() && r.Version != one:
				say("requires %s %s and other modules %s; run tools/tidy", r.Path, r.Version, one)
			}
		}
	}
	return append(found, work.untied(one)...), nil
}

// leftOut reports modules that are neither in go.work nor in bench or tools.
func (w workFile) leftOut(top string) ([]string, error) {
	var found []string
	folders, err := moduleFolders(top)
	for _, dir := range folders {
		used := slices.ContainsFunc(w.Use, func(u struct{ DiskPath string }) bool {
			return filepath.ToSlash(filepath.Clean(u.DiskPath)) == dir
		})
		if room := roomOf(dir); !used && room != "bench" && room != "tools" {
			found = append(found, dir+"/go.mod: go.work does not use this module; add a line")
		}
	}
	return found, err
}

// untied reports modules for which go.work has no replace line at the version
// that the others require.
func (w workFile) untied(one string) []string {
	var found []string
	for _, use := range w.Use {
		path := strings.TrimSuffix(module+"/"+filepath.ToSlash(filepath.Clean(use.DiskPath)), "/.")
		if !slices.ContainsFunc(w.Replace, func(r replaced) bool {
			return r.Old == (version{path, one}) && filepath.Clean(r.New.Path) == filepath.Clean(use.DiskPath)
		}) {
			found = append(found, fmt.Sprintf("go.work: no line replaces %s %s by %s", path, one, use.DiskPath))
		}
	}
	return found
}

// goPrints decodes what a go command prints as JSON.
func goPrints(into any, dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s in %s: %w", strings.Join(args, " "), dir, err)
	}
	return json.Unmarshal(out, into)
}

func TestTheModulesAreReleasedTogether(t *testing.T) {
	found, err := looseModules(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

// TestARequirementTooManyIsCaught spoils a sound workspace once a case.
func TestARequirementTooManyIsCaught(t *testing.T) {
	const at = " v0.1.0\n"
	sound := map[string]string{
		"go.work": "go 1.26\nuse .\nuse ./backend/redis\nuse ./cmd/croft\n" +
			"replace " + module + " v0.1.0 => ./\n" +
			"replace " + module + "/backend/redis v0.1.0 => ./backend/redis\n" +
			"replace " + module + "/cmd/croft v0.1.0 => ./cmd/croft\n",
		"go.mod":               "module " + module + "\ngo 1.26\nrequire golang.org/x/sys v0.49.0\nrequire pgregory.net/rapid v1.3.0\n",
		"backend/redis/go.mod": "module " + module + "/backend/redis\ngo 1.26\nrequire " + module + at,
		"bench/go.mod":         "module " + module + "/bench\ngo 1.26\n",
		"cmd/croft/go.mod":     "module " + module + "/cmd/croft\ngo 1.26\nrequire " + module + at + "require " + module + "/backend/redis" + at,
	}
	for _, c := range []struct{ name, file, more, want string }{
		{"nothing", "go.mod", "", ""},
		{"a client library in the root", "go.mod", "require github.com/redis/go-redis/v9 v9.23.0\n", "./go.mod: requires github.com/redis/go-redis/v9;"},
		{"a module of ours in the root", "go.mod", "require " + module + "/observe" + at, "./go.mod: requires " + module + "/observe;"},
		{"a replace directive", "cmd/croft/go.mod", "replace " + module + " => ../..\n", "cmd/croft/go.mod: replaces " + module + ";"},
		{"another version", "cmd/croft/go.mod", "require " + module + "/observe v0.2.0\n", "run tools/tidy"},
		{"another version of others", "cmd/croft/go.mod", "require golang.org/x/sys v0.50.0\n", "run go work sync, then tools/tidy"},
		{"a module that go.work does not use", "fence/go.mod", "module " + module + "/fence\n", "fence/go.mod: go.work does not use"},
		{"a module that go.work does not tie", "go.work", "use ./bench\n", "go.work: no line replaces " + module + "/bench v0.1.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := write(t, sound, map[string]string{c.file: sound[c.file] + c.more})
			found, err := looseModules(top)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				report(t, found)
				return
			}
			if len(found) != 1 || !strings.Contains(found[0], c.want) {
				t.Errorf("found %q, want one report with %q", found, c.want)
			}
		})
	}
}

// TestAProgramWithRedisHasAShortBuildList counts the modules that a program
// gets which imports the client and backend/redis. The go command first
// completes its go.mod with the indirect requirements: they add modules to the
// build list. On a new machine it downloads the go.mod files of modules that
// nothing here builds.
func TestAProgramWithRedisHasAShortBuildList(t *testing.T) {
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	text := "module example.org/program\n\ngo 1.26.0\n\n"
	for path, dir := range map[string]string{module: top, module + "/backend/redis": filepath.Join(top, "backend", "redis")} {
		text += fmt.Sprintf("require %s v0.0.0\nreplace %s => %q\n", path, path, filepath.ToSlash(dir))
	}
	program := "package main\n\nimport (\n\t_ \"" + module + "\"\n\t_ \"" + module + "/backend/redis\"\n)\n\nfunc main() {}\n"
	dir := write(t, map[string]string{"go.mod": text, "main.go": program}, nil)
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOSUMDB=off")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, said.String())
		}
		return string(out)
	}
	run("list", "-deps", ".") // writes go.mod
	if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || !strings.Contains(string(mod), "// indirect") {
		t.Fatalf("%v; go.mod has no indirect requirements, as every program's has:\n%s", err, mod)
	}
	out := run("list", "-m", "all")
	if n := strings.Count(out, "\n"); n > mostModules || !strings.Contains(out, "go-redis") {
		t.Errorf("%d modules, want go-redis and at most %d:\n%s", n, mostModules, out)
	}
}
