package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A pkg is a package with tests.
type pkg struct {
	name   string // as the user gives it, from the top: ./store/cas
	path   string // its import path
	dir    string // where its binary runs
	module string // where the go command builds it, from the top: "." or "bench"
	local  string // its name from there
	binary string
}

// alone is the folder of the module with tests that is not in go.work.
const alone = "bench"

// list finds the packages with tests that match patterns. No patterns means all
// packages of the workspace, and those of the module in bench.
func list(ctx context.Context, top string, patterns []string) ([]*pkg, error) {
	if len(patterns) == 0 {
		patterns = []string{"work"}
		if _, err := os.Stat(filepath.Join(top, alone, "go.mod")); err == nil {
			patterns = append(patterns, "./"+alone+"/...")
		}
	}
	var modules []string
	within := map[string][]string{}
	for _, p := range patterns {
		module, local := split(p)
		if !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
		within[module] = append(within[module], local)
	}
	var all []*pkg
	for _, module := range modules {
		found, err := listModule(ctx, top, module, within[module])
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no package in %s has tests", strings.Join(patterns, " "))
	}
	return all, nil
}

// split returns the folder in which the go command finds a pattern, and the
// pattern relative to it. That is the top for all modules in go.work.
func split(pattern string) (module, local string) {
	rest, ok := strings.CutPrefix(filepath.ToSlash(pattern), "./"+alone)
	if ok && (rest == "" || rest[0] == '/') {
		return alone, "." + rest
	}
	return ".", pattern
}

// listModule finds the packages with tests of one module.
func listModule(ctx context.Context, top, module string, patterns []string) ([]*pkg, error) {
	args := append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles", "--"}, patterns...)
	cmd := goCommand(ctx, top, module, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var found []*pkg
	for in := json.NewDecoder(&stdout); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		err := in.Decode(&p)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		name, err := dotted(top, p.Dir)
		if err != nil {
			return nil, err
		}
		local, err := dotted(filepath.Join(top, module), p.Dir)
		if err != nil {
			return nil, err
		}
		found = append(found, &pkg{name: name, path: p.ImportPath, dir: p.Dir, module: module, local: local})
	}
}

// dotted returns the path from one folder to another, beginning with a dot.
func dotted(from, to string) (string, error) {
	rel, err := filepath.Rel(from, to)
	if err != nil {
		return "", err
	}
	if rel == "." {
		return rel, nil
	}
	return "./" + filepath.ToSlash(rel), nil
}

// build builds the test binary of every package, with as many builds at once as
// binaries will run.
func (h *hunter) build(ctx context.Context, pkgs []*pkg) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	with := strings.Join(append([]string{"go test -c"}, h.flags...), " ")
	h.say("building the tests of %s with %q", plural(len(pkgs), "package"), with)
	type result struct {
		pkg  *pkg
		took time.Duration
		err  error
	}
	results := make(chan result)
	todo := make(chan *pkg)
	go func() {
		defer close(todo)
		for n, p := range pkgs {
			p.binary = filepath.Join(h.tmp, "bin", fmt.Sprintf("%d.test", n))
			todo <- p
		}
	}()
	for range h.jobs {
		go func() {
			for p := range todo {
				from := time.Now()
				err := h.buildOne(ctx, p)
				results <- result{p, time.Since(from), err}
			}
		}()
	}
	var failed error
	for n := range pkgs {
		r := <-results
		switch {
		case r.err == nil:
			h.say("  built %d of %d: %s in %s", n+1, len(pkgs), r.pkg.name, brief(r.took))
		case failed == nil:
			failed = r.err
			cancel()
		}
	}
	if failed == nil {
		h.say("built all in %s", brief(time.Since(began)))
	}
	return failed
}

func (h *hunter) buildOne(ctx context.Context, p *pkg) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	args := append([]string{"test", "-c", "-o", p.binary}, h.flags...)
	cmd := goCommand(ctx, h.top, p.module, append(args, p.local)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests of %s: %w\n%s", p.name, err, bytes.TrimSpace(out))
	}
	return nil
}

// goCommand returns a go command in the folder of a module. It ends with ctx,
// and with this process.
func goCommand(ctx context.Context, top, module string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(top, module)
	if module == alone {
		cmd.Env = append(os.Environ(), "GOWORK=off")
	}
	own(cmd)
	// A compiler that go has started does not see the end of ctx, and holds the
	// pipes. So kill the group.
	cmd.Cancel = func() error { return endGroup(cmd.Process) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// brief formats a duration for people.
func brief(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
