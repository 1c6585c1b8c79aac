// Command lint looks for mistakes that the compiler does not see. `make lint`
// runs it through `go vet -vettool`, which calls it once per package.
//
// It is a list of public analyzers, with those of `go vet` among them, and four
// rules of our own: a file must be formatted by gofumpt, and code must be used,
// without parameters and conversions that do nothing. The go command keeps the
// results in its build cache, so only packages that have changed are looked at
// again, in any clone.
//
// A comment excuses one line from one linter, and says why:
//
//	case err == io.EOF: //nolint:errorlint // only io.EOF itself is the end
package main

import (
	"encoding/json"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/deprecated"
)

func main() {
	if onlyForFacts(os.Args[len(os.Args)-1]) {
		unitchecker.Main(deprecated.Analyzer, printf.Analyzer, ctrlflow.Analyzer)
	}
	var all []*analysis.Analyzer
	names := map[string]bool{}
	for _, l := range linters() {
		names[l.name] = true
		for _, a := range l.analyzers {
			a.Run = quiet(l, a.Run)
			all = append(all, a)
		}
	}
	unitchecker.Main(append(all, excuses(names))...)
}

// onlyForFacts reports whether the go command asks about a package that Croft
// imports. Of such a package only these matter: its deprecated names, and the
// functions that print or never return. They are found without the costly
// analysis of its functions.
func onlyForFacts(file string) bool {
	if !strings.HasSuffix(file, ".cfg") {
		return false
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return false // unitchecker reports it
	}
	var asked struct {
		ImportPath string
		VetxOnly   bool
	}
	ours := "github.com/croft-dev/croft"
	return json.Unmarshal(content, &asked) == nil && asked.VetxOnly && !strings.HasPrefix(asked.ImportPath, ours)
}
