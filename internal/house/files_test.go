package house

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// longest is the most lines that a file may have.
const longest = 500

// empty are names that say nothing about the content.
var empty = []string{"util", "utils", "common", "helper", "helpers", "types", "misc"}

// missingComments reports packages that have no package comment outside tests.
func missingComments(t *tree) []string {
	var found []string
	for _, p := range t.packages {
		if p.says == "" {
			found = append(found, p.dir+": no package comment; say in one what the package is for")
		}
	}
	return found
}

// missingStates reports packages that start goroutines, and whose package
// comment does not tell which.
func missingStates(t *tree) []string {
	var found []string
	for _, p := range t.packages {
		if p.starts != "" && !strings.Contains(strings.ToLower(p.says), "goroutine") {
			found = append(found, p.starts+": starts a goroutine; tell in the package comment which goroutines there are, "+
				"what they share and when they end, as internal/supervise/doc.go does")
		}
	}
	return found
}

// longFiles reports handwritten files that are longer than longest.
func longFiles(t *tree) []string {
	var found []string
	for _, f := range t.files {
		if !f.test && !f.generated && f.lines > longest {
			found = append(found, fmt.Sprintf("%s: %d lines, more than %d; find the two ideas in it and give each a file", f.name, f.lines, longest))
		}
	}
	return found
}

// emptyNames reports Go files and folders with a name from empty.
func emptyNames(t *tree) []string {
	var found []string
	for _, f := range t.files {
		stem := strings.TrimSuffix(path.Base(f.name), ".go")
		for _, suffix := range []string{"_test", "_linux", "_darwin", "_windows", "_unix", "_other"} {
			stem = strings.TrimSuffix(stem, suffix)
		}
		if slices.Contains(empty, stem) {
			found = append(found, f.name+": a name for everything says nothing; name the file after what it holds")
		}
	}
	for _, p := range t.packages {
		if slices.Contains(empty, path.Base(p.dir)) {
			found = append(found, p.dir+": a name for everything says nothing; name the package after what it provides")
		}
	}
	return found
}

// shared are folders that every machine has. A path below one of them does not
// say where the repository is kept.
var shared = []string{"/", "/tmp", "/var", "/usr", "/opt", "/srv", "/mnt", "/media", "/home", "/run", "/etc", "/data", "/src", "/app", "/build", "/workspace"}

// privatePaths reports mentions of this machine's own folders in the named
// files: the folder of the repository, and the home of the user who runs the
// test. They mean nothing to a reader elsewhere.
func privatePaths(top, home string, files []string) ([]string, error) {
	var private, folders []string
	for _, dir := range []string{filepath.Dir(top), home} {
		if dir != "" && !slices.Contains(shared, filepath.ToSlash(dir)) {
			private, folders = append(private, regexp.QuoteMeta(dir)), append(folders, dir)
		}
	}
	if len(private) == 0 {
		return nil, nil
	}
	// Only where a path begins: import paths and globs contain the same names.
	mention := regexp.MustCompile(`(?:^|[^\w./~$})*-]|://)(?:` + strings.Join(private, "|") + `)[/\\]`)

	var found []string
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) || path.Ext(name) == ".sum" {
			continue // deleted but not yet committed; or checksums, which contain any letters
		}
		if err != nil {
			return nil, err
		}
		within := func(folder string) bool { return strings.Contains(string(text), folder) }
		if !slices.ContainsFunc(folders, within) {
			continue // true of most files, and faster than looking at each line
		}
		for n, line := range strings.Split(string(text), "\n") {
			if mention.MatchString(line) {
				found = append(found, fmt.Sprintf("%s:%d: names a folder of this machine: %s", name, n+1, strings.TrimSpace(line)))
			}
		}
	}
	return found, nil
}
