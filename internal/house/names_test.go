package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A test's name states a promise, and a promise has an actor: the store, a
// waiter, a stale write. "What is idle" and "whoever waits" leave the reader to
// guess it. The same holds for the names of cases.
var (
	actorless = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)(Law[0-9]+)?` +
		`(Who(ever|se|m)?|What(ever)?|(One|Those|Many)(Who|That))([A-Z0-9_]|$)`)
	actorlessCase = regexp.MustCompile(`^(who(ever|se|m)?|what(ever)?|(one|those|many) (who|that))\b`)
)

// suites matches packages whose files are tests for others.
var suites = regexp.MustCompile(`(^|/)(internal/test/|[a-z]+test$)`)

// actorlessNames reports tests and cases whose names begin so.
func actorlessNames(top string) ([]string, error) {
	var found []string
	err := written(top, func(name string, text []byte) error {
		if !strings.HasSuffix(name, "_test.go") && (!strings.HasSuffix(name, ".go") || !suites.MatchString(path.Dir(name))) {
			return nil
		}
		file, positions, err := parse(name, text)
		if err != nil {
			return err
		}
		say := func(at token.Pos, what string) {
			found = append(found, fmt.Sprintf("%s:%d: %s; begin a test's name with the actor",
				name, positions.Position(at).Line, what))
		}
		for n := range ast.Preorder(file) {
			if f, ok := n.(*ast.FuncDecl); ok && f.Recv == nil && actorless.MatchString(f.Name.Name) {
				say(f.Pos(), f.Name.Name)
			}
			if named := caseName(n); named != nil && actorlessCase.MatchString(unquoted(named)) {
				say(named.Pos(), named.Value)
			}
		}
		return nil
	})
	return found, err
}

// caseName returns the text by which a node names a case, or nil. A case is
// named by its key in a table, by the first field of its row, or by the
// argument before its function, as in t.Run.
func caseName(n ast.Node) *ast.BasicLit {
	var named ast.Expr
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		named = n.Key
	case *ast.CompositeLit:
		if n.Type == nil && len(n.Elts) > 1 {
			named = n.Elts[0]
		}
	case *ast.CallExpr:
		if len(n.Args) > 1 {
			if _, ok := n.Args[1].(*ast.FuncLit); ok {
				named = n.Args[0]
			}
		}
	}
	lit, ok := named.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return nil
	}
	return lit
}

func unquoted(lit *ast.BasicLit) string {
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return text
}

func TestTestNamesBeginWithAnActor(t *testing.T) {
	found, err := actorlessNames(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

// TestPlantedTestNamesAreCaught plants names without an actor, and names that
// only resemble them.
func TestPlantedTestNamesAreCaught(t *testing.T) {
	testFile := func(body string) string { return "package a\n\n" + body + "\n" }
	cases := func(body string) string { return testFile("func f() {\n\t" + body + "\n}") }
	for _, c := range []struct{ file, text, want string }{
		{"a_test.go", testFile("func TestWhatIsIdleIsGivenBack() {}"), "a_test.go:3: TestWhatIsIdleIsGivenBack"},
		{"b_test.go", testFile("func TestWhoeverWaitsLeaves() {}"), "b_test.go:3: TestWhoeverWaitsLeaves"},
		{"c_test.go", testFile("func TestLaw5WhatIsOnItsWay() {}"), "c_test.go:3: TestLaw5What"},
		{"d_test.go", testFile("func ExampleOneWhoIsNamed() {}"), "d_test.go:3: ExampleOneWho"},
		{"e_test.go", testFile("func FuzzWho_x() {}"), "e_test.go:3: FuzzWho_x"},
		{"f_test.go", testFile("func TestWholeLinesAreSaid() {}\n\nfunc TestTheDoctorNamesWhatIsWrong() {}\n\nfunc TestOneThatched() {}"), ""},
		{"g_test.go", cases(`t.Run("what is idle", func() {})`), `g_test.go:4: "what is idle"`},
		{"h_test.go", cases(`_ = map[string]int{"whoever waits": 1}`), `h_test.go:4: "whoever waits"`},
		{"i_test.go", cases(`_ = []row{{"one that waits", 1}}`), `i_test.go:4: "one that waits"`},
		{"j_test.go", cases("t.Run(`the whole of it`, func() {})\n\tt.Error(\"what is kept\")"), ""},
		{"store/xtest/k.go", cases(`_ = []check{{"who is alive is left alone", f}}`), "store/xtest/k.go:4: "},
		{"internal/test/x/l.go", testFile("func TestWhatever() {}"), "internal/test/x/l.go:3: TestWhatever"},
		{"m.go", cases(`_ = map[string]int{"what": 1}`), ""},
	} {
		found, err := actorlessNames(write(t, map[string]string{c.file: c.text}, nil))
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)) {
			t.Errorf("%s: found %q, want %q", c.file, found, c.want)
		}
	}
}
