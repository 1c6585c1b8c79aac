package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// tree is a repository, as the laws see it. Go files are read without the go
// command, for all systems, so that an import on another system counts too.
type tree struct {
	top      string
	packages []*pkg
	files    []goFile
}

// pkg is one folder with Go files.
type pkg struct {
	dir     string     // relative to the top, with slashes; "." is the top
	imports []imported // of non-test files
	says    string     // the package comment
	starts  string     // where it starts a goroutine outside of tests, or ""
}

// imported is one import and its position.
type imported struct{ path, at string }

// goFile is one Go file, tests included.
type goFile struct {
	name      string // relative to the top, with slashes
	lines     int
	test      bool
	generated bool
}

func (p *pkg) room() string { return roomOf(p.dir) }

// at returns the package in a folder, or nil.
func (t *tree) at(dir string) *pkg {
	for _, p := range t.packages {
		if p.dir == dir {
			return p
		}
	}
	return nil
}

// readTree reads every Go file below top that the go command would read. It
// skips testdata, and folders whose names begin with a dot or an underscore. It
// also reads the modules within the repository.
func readTree(top string) (*tree, error) {
	t := &tree{top: top}
	err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if file != top && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		name, err := filepath.Rel(top, file)
		if err != nil {
			return err
		}
		return t.read(filepath.ToSlash(name))
	})
	return t, err
}

// read adds one Go file to the tree.
func (t *tree) read(name string) error {
	src, err := os.ReadFile(filepath.Join(t.top, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	file, positions, err := parse(name, src)
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	test := strings.HasSuffix(name, "_test.go")
	t.files = append(t.files, goFile{name: name, lines: bytes.Count(src, []byte("\n")), test: test, generated: ast.IsGenerated(file)})

	dir := path.Dir(name)
	p := t.at(dir)
	if p == nil {
		p = &pkg{dir: dir}
		t.packages = append(t.packages, p)
	}
	if test {
		return nil
	}
	p.says += file.Doc.Text()
	if at := startOf(file); at.IsValid() && p.starts == "" {
		p.starts = fmt.Sprintf("%s:%d", name, positions.Position(at).Line)
	}
	for _, spec := range file.Imports {
		imports, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("reading the imports of %s: %w", name, err)
		}
		at := positions.Position(spec.Pos())
		p.imports = append(p.imports, imported{path: imports, at: fmt.Sprintf("%s:%d", at.Filename, at.Line)})
	}
	return nil
}

// parsed has the files that laws have read so far. Parsing a file takes longer
// than a law does.
var parsed = map[source]tokens{}

type (
	source struct{ name, text string }
	tokens struct {
		file      *ast.File
		positions *token.FileSet
	}
)

// parse reads the text of a Go file, with its comments.
func parse(name string, text []byte) (*ast.File, *token.FileSet, error) {
	key := source{name, string(text)}
	if p, ok := parsed[key]; ok {
		return p.file, p.positions, nil
	}
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err == nil {
		parsed[key] = tokens{file, positions}
	}
	return file, positions, err
}

// startOf returns the position at which a file starts its first goroutine: by a
// go statement, or by the method Go of a group.
func startOf(file *ast.File) token.Pos {
	for n := range ast.Preorder(file) {
		switch n := n.(type) {
		case *ast.GoStmt:
			return n.Pos()
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" && len(n.Args) == 1 {
				return n.Pos()
			}
		}
	}
	return token.NoPos
}

// tracked returns the files under version control, which others get to see.
func tracked(top string) ([]string, error) {
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = top
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w: these tests look at the files under version control, so run them in a clone", top, err)
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00"), nil
}
