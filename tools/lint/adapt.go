package main

import (
	"bytes"
	"go/token"
	"strings"

	"github.com/golangci/unconvert"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/buildssa"
	"golang.org/x/tools/go/packages"
	"honnef.co/go/tools/unused"
	gofumpt "mvdan.cc/gofumpt/format"
	"mvdan.cc/unparam/check"
)

// The linters in this file are not analyzers by themselves.

// format reports files that gofumpt would change, also those for other systems.
var format = &analysis.Analyzer{
	Name: "gofumpt",
	Doc:  "files are formatted by gofumpt",
	Run: func(pass *analysis.Pass) (any, error) {
		options := gofumpt.Options{LangVersion: pass.Pkg.GoVersion()}
		if pass.Module != nil {
			options.ModulePath = pass.Module.Path
		}
		for _, file := range pass.Files {
			name := pass.Fset.Position(file.Package).Filename
			if !strings.HasSuffix(name, ".go") {
				continue
			}
			content, err := pass.ReadFile(name)
			if err != nil {
				return nil, err
			}
			want, err := gofumpt.Source(content, options)
			if err != nil {
				return nil, err
			}
			if !bytes.Equal(content, want) {
				pass.Reportf(file.Package, "the file is not formatted: make fmt")
			}
		}
		return nil, nil
	},
}

// dead reports code that nothing uses.
var dead = &analysis.Analyzer{
	Name:     "unused",
	Doc:      unused.Analyzer.Analyzer.Doc,
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, object := range pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused {
			if object.Kind != "type param" {
				pass.Reportf(at(pass, object.Position), "%s %s is unused", object.Kind, object.Name)
			}
		}
		return nil, nil
	},
}

// conversions reports conversions to the type that a value already has.
var conversions = &analysis.Analyzer{
	Name: "unconvert",
	Doc:  "conversions change the type",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, position := range unconvert.Run(pass) {
			pass.Reportf(at(pass, position), "the conversion does nothing")
		}
		return nil, nil
	},
}

// parameters reports parameters and results that could go.
var parameters = &analysis.Analyzer{
	Name:     "unparam",
	Doc:      "parameters and results are of use",
	Requires: []*analysis.Analyzer{buildssa.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		c := &check.Checker{}
		c.Packages([]*packages.Package{{
			Fset: pass.Fset, Syntax: pass.Files, Types: pass.Pkg, TypesInfo: pass.TypesInfo,
		}})
		c.ProgramSSA(pass.ResultOf[buildssa.Analyzer].(*buildssa.SSA).Pkg.Prog)
		found, err := c.Check()
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			pass.Reportf(f.Pos(), "%s", f.Message())
		}
		return nil, nil
	},
}

// at finds the Pos of a position in the pass's files.
func at(pass *analysis.Pass, p token.Position) token.Pos {
	for _, file := range pass.Files {
		f := pass.Fset.File(file.Package)
		if f.Name() == p.Filename && p.Line >= 1 && p.Line <= f.LineCount() {
			return f.LineStart(p.Line) + token.Pos(p.Column-1)
		}
	}
	return token.NoPos
}
