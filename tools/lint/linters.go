package main

import (
	"fmt"
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	makezero "github.com/ashanbrown/makezero/v2/pkg/analyzer"
	"github.com/charithe/durationcheck"
	gocritic "github.com/go-critic/go-critic/checkers/analyzer"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/karamaru-alpha/copyloopvar"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/ldez/usetesting"
	"github.com/sanposhiho/wastedassign/v2"
	"github.com/timakin/bodyclose/passes/bodyclose"
	fatcontext "go.augendre.info/fatcontext/pkg/analyzer"
	"golang.org/x/tools/go/analysis"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/quickfix"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
)

// linter is one or more analyzers under the name that comments excuse.
type linter struct {
	name      string
	analyzers []*analysis.Analyzer
	noTests   bool               // it does not look at tests
	excused   func(finding) bool // nil excuses nothing
}

// linters returns all that Croft is held to.
func linters() []linter {
	return []linter{
		one("bodyclose", bodyclose.Analyzer),
		one("copyloopvar", copyloopvar.NewAnalyzer()),
		one("durationcheck", durationcheck.Analyzer),
		{name: "errcheck", analyzers: []*analysis.Analyzer{errcheck.Analyzer}, excused: mayFail},
		one("errorlint", with(errorlint.NewAnalyzer(), "errorf", "true")),
		one("fatcontext", fatcontext.NewAnalyzer()),
		{name: "gocritic", noTests: true, analyzers: []*analysis.Analyzer{with(gocritic.Analyzer,
			"enable", "#diagnostic,#style",
			"disable", strings.Join([]string{
				"#opinionated", "#performance", "#security",
				"boolExprSimplify", // we judge by reading
				"commentedOutCode", // mistakes formulas in comments for code
				"ifElseChain",      // a chain often reads better than a switch
				"whyNoLint",        // the excuses are checked in quiet.go
			}, ","))}},
		one("gofumpt", format),
		one("govet", vet()...),
		one("ineffassign", ineffassign.Analyzer),
		one("makezero", makezero.NewAnalyzer()),
		{name: "staticcheck", analyzers: checks()},
		one("unconvert", conversions),
		{name: "unparam", noTests: true, analyzers: []*analysis.Analyzer{parameters}},
		one("unused", dead),
		one("usetesting", with(usetesting.NewAnalyzer(),
			"contexttodo", "true",
			"ossetenv", "true",
			"ostempdir", "true")),
		one("wastedassign", wastedassign.Analyzer),
	}
}

// checks returns staticcheck's own analyzers.
func checks() []*analysis.Analyzer {
	without := map[string]bool{
		"ST1000": true, // package comments: internal/house
		"ST1003": true, // names: we judge by reading
		"QF1001": true, // De Morgan: we judge by reading
		"QF1008": true, // naming the embedded field is often clearer
	}
	var all []*analysis.Analyzer
	for _, group := range [][]*lint.Analyzer{
		staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers, quickfix.Analyzers,
	} {
		for _, a := range group {
			if !without[a.Analyzer.Name] {
				all = append(all, a.Analyzer)
			}
		}
	}
	return all
}

func one(name string, analyzers ...*analysis.Analyzer) linter {
	return linter{name: name, analyzers: analyzers}
}

// with sets flags of an analyzer: name, value, name, value, and so on.
func with(a *analysis.Analyzer, flags ...string) *analysis.Analyzer {
	for i := 0; i < len(flags); i += 2 {
		if err := a.Flags.Set(flags[i], flags[i+1]); err != nil {
			panic(fmt.Sprintf("%s has no flag -%s: %v", a.Name, flags[i], err))
		}
	}
	return a
}
