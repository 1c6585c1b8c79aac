// Command oscheck type-checks all packages and their tests for other systems
// than this one: oscheck darwin/arm64 windows/amd64.
//
// It reports what a compiler would report, without compiling. go vet would
// first compile all dependencies for each system, which takes minutes without a
// cache. oscheck reads imported packages without the bodies of their functions.
//
// Like the go command, it does not repeat a check that passed: see checked.go.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: oscheck SYSTEM/ARCHITECTURE...")
		os.Exit(2)
	}
	before, err := inputs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "oscheck:", err)
		os.Exit(1)
	}
	failed := false
	for _, system := range os.Args[1:] {
		if passed(system, before) {
			continue
		}
		err := check(system)
		if err == nil {
			err = pass(system, before)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "oscheck: %s: %v\n", system, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check returns the type errors in the workspace's packages on a system.
func check(system string) error {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return errors.New("not a system and an architecture, as in windows/amd64")
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	all, err := packages.Load(&packages.Config{
		Mode:  packages.LoadAllSyntax,
		Tests: true,
		Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			own := strings.HasPrefix(name, here+string(filepath.Separator))
			file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if !own && file != nil {
				for _, d := range file.Decls {
					if f, ok := d.(*ast.FuncDecl); ok {
						f.Body = nil
					}
				}
			}
			return file, err
		},
	}, "work") // all packages of the modules in go.work
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("there are no packages here")
	}
	var found []error
	seen := map[string]bool{}
	for _, p := range all { // only our own packages: the imported ones are incomplete
		if strings.HasSuffix(p.ID, ".test") { // a generated main package
			continue
		}
		for _, e := range p.Errors {
			if text := e.Error(); !seen[text] {
				seen[text] = true
				found = append(found, errors.New(text))
			}
		}
	}
	return errors.Join(found...)
}
