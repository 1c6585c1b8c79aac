// Package statements splits embedded SQL files into named statements.
//
// A file holds several statements. A line with a name begins each of them:
//
//	-- name: claim
//	-- The row lock keeps a second claim waiting.
//	UPDATE item
//	SET state = 'running'
//	WHERE id = ?1
//
// The text of a statement is everything up to the next name, without blank
// lines and without lines that are comments. Comments may therefore be as long
// as they need to be: no server ever sees them. A comment at the end of a line
// of code stays in the text, and so does a semicolon.
//
// The package does not parse SQL. So no line inside a string literal may be
// blank or begin with "--".
//
// Names are unique in all files of a set. Mistakes in embedded files are
// mistakes of the programmer: [MustLoad] and [Set.Must] panic, so that a
// program with a wrong file or name stops when it starts.
package statements

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// Set holds the texts of statements by their names.
type Set map[string]string

var validName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// MustLoad reads all files of fsys that match pattern, as [fs.Glob] does, and
// returns their statements. It panics if no file matches, if a file cannot be
// read or parsed, or if two files have a statement of the same name.
func MustLoad(fsys fs.FS, pattern string) Set {
	files, err := fs.Glob(fsys, pattern)
	if err != nil {
		panic(fmt.Sprintf("statements: pattern %q: %v", pattern, err))
	}
	if len(files) == 0 {
		panic(fmt.Sprintf("statements: no file matches %q", pattern))
	}
	all := Set{}
	for _, file := range files {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			panic(fmt.Sprintf("statements: %v", err))
		}
		set, err := Parse(string(text))
		if err != nil {
			panic(fmt.Sprintf("statements: %s: %v", file, err))
		}
		for name, statement := range set {
			if _, ok := all[name]; ok {
				panic(fmt.Sprintf("statements: %s: another file has a statement named %q, too", file, name))
			}
			all[name] = statement
		}
	}
	return all
}

// Parse returns the statements of one file's text. It returns an error if
// there is SQL before the first name, or a name is malformed, used twice or
// followed by no statement.
func Parse(text string) (Set, error) {
	set := Set{}
	name := ""
	var lines []string // of the statement called name
	finish := func() error {
		if name == "" {
			return nil
		}
		if len(lines) == 0 {
			return fmt.Errorf("no statement follows the name %q", name)
		}
		set[name] = strings.Join(lines, "\n")
		lines = nil
		return nil
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, " \t\r\n")
		comment, isComment := strings.CutPrefix(strings.TrimSpace(line), "--")
		next, isName := strings.CutPrefix(strings.TrimSpace(comment), "name:")
		switch {
		case isComment && isName:
			if err := finish(); err != nil {
				return nil, err
			}
			name = strings.TrimSpace(next)
			if !validName.MatchString(name) {
				return nil, fmt.Errorf("line %d: %q is no name: use lower-case letters, digits and _", number, name)
			}
			if _, ok := set[name]; ok {
				return nil, fmt.Errorf("line %d: the name %q is used twice", number, name)
			}
		case isComment || line == "":
		case name == "":
			return nil, fmt.Errorf("line %d: put a line \"-- name: …\" before the first statement", number)
		default:
			lines = append(lines, line)
		}
	}
	if err := finish(); err != nil {
		return nil, err
	}
	if len(set) == 0 {
		return nil, errors.New("no statement")
	}
	return set, nil
}

// Must returns the text of the statement called name. It panics if the set
// has none.
func (s Set) Must(name string) string {
	text, ok := s[name]
	if !ok {
		panic(fmt.Sprintf("statements: no statement is named %q", name))
	}
	return text
}
