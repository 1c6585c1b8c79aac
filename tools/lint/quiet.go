package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// finding is a diagnostic with the line of code that it is about.
type finding struct {
	position token.Position
	message  string
	line     string
}

func (f finding) inTest() bool { return strings.HasSuffix(f.position.Filename, "_test.go") }

// inProgram reports whether the code is part of a program, not of a package
// that others import.
func (f finding) inProgram() bool {
	return strings.Contains(f.position.Filename, "/cmd/") || strings.Contains(f.position.Filename, "/tools/")
}

// excuse matches a comment that excuses its line: the linters, and the reason.
var excuse = regexp.MustCompile(`//\s*nolint(?::([a-z0-9,]*))?(?:\s+//\s*(\S.*))?`)

// quiet runs an analyzer, and drops the findings that are excused: by a
// comment, by the linter's own rule, or because a program wrote the file.
func quiet(l linter, run func(*analysis.Pass) (any, error)) func(*analysis.Pass) (any, error) {
	return func(pass *analysis.Pass) (any, error) {
		report, sources := pass.Report, newSources(pass)
		pass.Report = func(d analysis.Diagnostic) {
			f := sources.finding(d)
			switch {
			case sources.generated[f.position.Filename]:
			case l.noTests && f.inTest():
			case l.excused != nil && l.excused(f):
			case slices.Contains(excusedBy(f.line), l.name):
			default:
				d.Message = fmt.Sprintf("%s (%s)", d.Message, l.name)
				report(d)
			}
		}
		return run(pass)
	}
}

// excusedBy returns the linters that a line's comment names.
func excusedBy(line string) []string {
	if m := excuse.FindStringSubmatch(line); m != nil {
		return strings.Split(m[1], ",")
	}
	return nil
}

// excuses makes the analyzer that checks the excuses themselves.
func excuses(names map[string]bool) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "nolint",
		Doc:  "an excuse names known linters and gives a reason",
		Run: func(pass *analysis.Pass) (any, error) {
			for _, file := range pass.Files {
				for _, group := range file.Comments {
					for _, c := range group.List {
						if !strings.HasPrefix(c.Text, "//nolint") {
							continue
						}
						m := excuse.FindStringSubmatch(c.Text)
						if m[1] == "" || m[2] == "" {
							pass.Reportf(c.Pos(), "write //nolint:LINTER // REASON")
							continue
						}
						for name := range strings.SplitSeq(m[1], ",") {
							if !names[name] {
								pass.Reportf(c.Pos(), "there is no linter %q", name)
							}
						}
					}
				}
			}
			return nil, nil
		},
	}
}

// A deferred Close or Remove is for files that were only read, or synced
// before. A Close without defer is still checked.
var deferred = regexp.MustCompile(`defer .*(Close|Remove|RemoveAll|Unlock)\(`)

// mayFail excuses calls whose errors mean nothing.
func mayFail(f finding) bool {
	if deferred.MatchString(f.line) {
		return true
	}
	has := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(f.line, s) })
	}
	// A program prints to the user's terminal. A failure there is ignored.
	if (f.inProgram() || f.inTest()) && has("fmt.Fprint") {
		return true
	}
	return f.inTest() && has(".Close(", ".Kill(", ".Wait(", "os.Remove")
}

// sources reads the files of one pass, once each.
type sources struct {
	pass      *analysis.Pass
	lines     map[string][][]byte
	generated map[string]bool
}

func newSources(pass *analysis.Pass) *sources {
	s := &sources{pass: pass, lines: map[string][][]byte{}, generated: map[string]bool{}}
	for _, file := range pass.Files {
		if ast.IsGenerated(file) {
			s.generated[pass.Fset.Position(file.Package).Filename] = true
		}
	}
	return s
}

func (s *sources) finding(d analysis.Diagnostic) finding {
	p := s.pass.Fset.Position(d.Pos)
	lines, known := s.lines[p.Filename]
	if !known {
		content, err := s.pass.ReadFile(p.Filename)
		if err == nil {
			lines = bytes.Split(content, []byte("\n"))
		}
		s.lines[p.Filename] = lines
	}
	f := finding{position: p, message: d.Message}
	if p.Line > 0 && p.Line <= len(lines) {
		f.line = string(lines[p.Line-1])
	}
	return f
}
