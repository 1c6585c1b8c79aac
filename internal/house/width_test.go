package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The widths of lines, in columns. A tab counts four.
const (
	commentWidth = 80
	codeWidth    = 120
)

// commentMarks begin a comment line, by the ending of a file's name.
var commentMarks = map[string][]string{
	".go": {"//"}, ".sql": {"--"}, ".lua": {"--"}, ".py": {"#"}, ".ts": {"//", "/*", "*"},
}

// isComment reports whether a line of a file begins with a comment.
func isComment(file, line string) bool {
	line = strings.TrimSpace(line)
	return slices.ContainsFunc(commentMarks[filepath.Ext(file)], func(mark string) bool {
		return strings.HasPrefix(line, mark)
	})
}

// wideLines reports comments that end after column 80, and code that ends after
// column 120. A line with a URL may be as long as it needs to be. Go tests may
// have wide code, because tables are easier to compare on one line.
func wideLines(top string) ([]string, error) {
	var found []string
	err := written(top, func(name string, text []byte) error {
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			line = strings.TrimRight(line, "\r\n")
			wide := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
			comment := isComment(name, line)
			switch {
			case strings.Contains(line, "://"):
			case comment && strings.HasPrefix(strings.TrimSpace(line), "//go:"):
			case comment && wide > commentWidth:
				found = append(found, fmt.Sprintf("%s:%d: a comment of %d columns; wrap it at %d", name, number, wide, commentWidth))
			case !comment && wide > codeWidth && !strings.HasSuffix(name, "_test.go"):
				found = append(found, fmt.Sprintf("%s:%d: code of %d columns; break it at %d", name, number, wide, codeWidth))
			}
		}
		return nil
	})
	return found, err
}

// riddle matches sentences without an actor: "whoever waits", "what is kept".
var riddle = regexp.MustCompile(`\b([Ww]hoever|[Oo]ne (?:that|who)|[Ww]ho (?:is|was|has|waits|asks|comes)|` +
	`[Ww]hat (?:is|was|has|it|they)|of whom|that of which)\b`)

// exportedRiddles reports documentation that users read and that names no
// actor. Only packages that others can import are looked at.
func exportedRiddles(top string) ([]string, error) {
	var found []string
	err := written(top, func(name string, text []byte) error {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || unimportable.MatchString(name) {
			return nil
		}
		file, positions, err := parse(name, text)
		if err != nil {
			return err
		}
		for _, doc := range exportedDocs(file) {
			for _, line := range doc.List {
				if m := riddle.FindString(line.Text); m != "" {
					at := positions.Position(line.Pos())
					found = append(found, fmt.Sprintf("%s:%d: %q in exported documentation; name the actor", name, at.Line, m))
				}
			}
		}
		return nil
	})
	return found, err
}

// retired matches identifiers with a word that had a second meaning. Waiters
// stand in a queue, and have a position there. A ledger works in a transaction.
var retired = regexp.MustCompile(`^inLine|InLine|^(desk|Desk)|^([pP]|un[pP]|dis[pP]|Dis[pP])laced$`)

// retiredNames reports such identifiers.
func retiredNames(top string) ([]string, error) {
	var found []string
	bad := map[string]bool{} // a tree has many more identifiers than names
	err := written(top, func(name string, text []byte) error {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, positions, err := parse(name, text)
		if err != nil {
			return err
		}
		for n := range ast.Preorder(file) {
			id, ok := n.(*ast.Ident)
			if !ok {
				continue
			}
			if _, known := bad[id.Name]; !known {
				bad[id.Name] = retired.MatchString(id.Name)
			}
			if bad[id.Name] {
				found = append(found, fmt.Sprintf("%s:%d: the name %q; say queue, position or transaction",
					name, positions.Position(id.Pos()).Line, id.Name))
			}
		}
		return nil
	})
	return found, err
}

// unimportable matches files of packages that nobody else can import, or that
// only tests of this repository do.
var unimportable = regexp.MustCompile(`(^|/)(internal|cmd|tools|bench|proof|examples)/`)

// exportedDocs lists the comments of a file that documentation shows.
func exportedDocs(file *ast.File) []*ast.CommentGroup {
	docs := []*ast.CommentGroup{file.Doc}
	fields := func(list *ast.FieldList) {
		for _, f := range list.List {
			if len(f.Names) == 0 || f.Names[0].IsExported() {
				docs = append(docs, f.Doc, f.Comment)
			}
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				docs = append(docs, d.Doc)
			}
		case *ast.GenDecl:
			shown := false
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if !s.Name.IsExported() {
						continue
					}
					shown = true
					docs = append(docs, s.Doc, s.Comment)
					switch t := s.Type.(type) {
					case *ast.StructType:
						fields(t.Fields)
					case *ast.InterfaceType:
						fields(t.Methods)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() {
						shown = true
						docs = append(docs, s.Doc, s.Comment)
					}
				}
			}
			if shown {
				docs = append(docs, d.Doc)
			}
		}
	}
	kept := docs[:0]
	for _, d := range docs {
		if d != nil {
			kept = append(kept, d)
		}
	}
	return kept
}

// written calls do for each file below top that has source code written by
// hand, with its name from the top. It leaves out testdata, packages of npm,
// and folders whose name begins with a dot.
func written(top string, do func(name string, text []byte) error) error {
	return filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if file != top && (d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if commentMarks[filepath.Ext(file)] == nil {
			return nil
		}
		text, err := os.ReadFile(file)
		// Most files do not have the words. Looking for them is faster.
		if err != nil || bytes.Contains(text, []byte("Code generated ")) && generated.Match(text) {
			return err
		}
		name, err := filepath.Rel(top, file)
		if err != nil {
			return err
		}
		return do(filepath.ToSlash(name), text)
	})
}

// generated matches the line by which tools mark their output.
var generated = regexp.MustCompile(`(?m)^(//|--) Code generated .* DO NOT EDIT\.$`)

// TestPlantedLinesAreCaught plants wide lines, riddles and retired names in a
// tree. Each must be reported, and nothing else.
func TestPlantedLinesAreCaught(t *testing.T) {
	wide := strings.Repeat("x", commentWidth)
	for file, c := range map[string]struct{ text, want string }{
		"a.go":              {"// " + wide + "\npackage a\n", "a.go:1: a comment"},
		"b.go":              {"package a\n\n\t// " + wide[:75] + "\n", "b.go:3: a comment"},
		"c.sql":             {"-- " + wide + "\n", "c.sql:1: a comment"},
		"d.lua":             {"local x = 1\n-- " + wide + "\n", "d.lua:2: a comment"},
		"e.go":              {"package a\n\nvar x = `" + wide + wide + "`\n", "e.go:3: code"},
		"f_test.go":         {"package a\n\nvar x = `" + wide + wide + "`\n", ""},
		"g.go":              {"package a\n\n// see https://example.org/" + wide + "\n", ""},
		"y.go":              {"package a\n\nvar http = `" + wide + wide + "`\n", "y.go:3: code"},
		"testdata/h.go":     {"// " + wide + "\n", ""},
		"i.go":              {"package a\n\n// Wait wakes whoever waits.\nfunc Wait() {}\n", `i.go:3: "whoever"`},
		"j.go":              {"package a\n\n// T is a thing.\ntype T struct {\n\tX int // what is kept\n}\n", `j.go:5: "what is"`},
		"k.go":              {"package a\n\n// wait wakes whoever waits.\nfunc wait() {}\n", ""},
		"internal/x/l.go":   {"package x\n\n// Wait wakes whoever waits.\nfunc Wait() {}\n", ""},
		"m.go":              {"package a\n\ntype I interface {\n\t// Do says what was done.\n\tDo()\n}\n", `m.go:4: "what was"`},
		"n.go":              {"package a\n\n// " + strings.Repeat("é", 77) + "\n", ""},
		"o.go":              {"// Code generated by x. DO NOT EDIT.\n\n// " + wide + "\npackage a\n", ""},
		"sub/.hidden/p.go":  {"// " + wide + "\n", ""},
		"sub/q_windows.go":  {"package a\n\n//go:generate " + wide + wide + "\n", ""},
		"backend/r/r.go":    {"// Package r is one that waits.\npackage r\n", `backend/r/r.go:1: "one that"`},
		"backend/v/v.go":    {"package v\n\nvar inLine = 1 // a desk in line\n", `backend/v/v.go:3: the name "inLine"`},
		"w_test.go":         {"package a\n\ntype desk struct{}\n", `w_test.go:3: the name "desk"`},
		"x.go":              {"package a\n\nvar inlined, replaced, drainLine = 1, 2, 3\n", ""},
		"proof/s/s.go":      {"// Package s is one that waits.\npackage s\n", ""},
		"clients/a.py":      {"# " + wide + "\n", "clients/a.py:1: a comment"},
		"clients/b.py":      {"x = '" + wide + wide + "'\n", "clients/b.py:1: code"},
		"clients/test_c.py": {"x = '" + wide + wide + "'\n", "clients/test_c.py:1: code"},
		"clients/d.ts":      {"/**\n * " + wide + "\n */\n", "clients/d.ts:2: a comment"},
		"clients/e.ts":      {"class E {\n  #x = '" + wide + "';\n}\n", ""},
		"clients/f.ts":      {"const x = '" + wide + wide + "';\n", "clients/f.ts:1: code"},
		"node_modules/g.ts": {"// " + wide + "\n", ""},
		"backend/t/t.sql":   {"SELECT '" + wide + wide + "'\n", "backend/t/t.sql:1: code"},
		"backend/u/u_x.lua": {"return '" + wide + wide + "'\n", "backend/u/u_x.lua:1: code"},
	} {
		top := write(t, map[string]string{file: c.text}, nil)
		found, err := wideLines(top)
		if err != nil {
			t.Fatal(err)
		}
		riddles, err := exportedRiddles(top)
		if err != nil {
			t.Fatal(err)
		}
		names, err := retiredNames(top)
		if err != nil {
			t.Fatal(err)
		}
		found = append(append(found, riddles...), names...)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)) {
			t.Errorf("%s: found %q, want %q", file, found, c.want)
		}
	}
}
