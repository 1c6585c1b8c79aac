package house

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// These find the parts of others that a file takes. The name of a Debian
// package must stand in the call: other calls are not found.
var (
	debianCall   = regexp.MustCompile(`\bProgram\(\w+, "[^"]+", "([^"]+)"|\b(?:Package\(\w+, |install\()"([^"]+)"`)
	debianStep   = regexp.MustCompile(`\bapt-get install ([^&|;\n]+)`)
	imageStep    = regexp.MustCompile(`(?m)^\s*image: (\S+)`)
	imageFrom    = regexp.MustCompile(`(?m)^FROM (?:--\S+ )*(\S+)`)
	actionStep   = regexp.MustCompile(`\buses: ([^@\s]+)@`)
	lockedModule = regexp.MustCompile(`"node_modules/([^"]+)": \{`)
)

// supplyPage lists the parts of a release and their sources.
const supplyPage = "docs/supply-chain.md"

// unlistedSupply reports parts of others that docs/supply-chain.md does not
// name: Debian packages, images, actions and npm packages. It also reports
// folders with such parts that Dependabot does not watch.
func unlistedSupply(top string) ([]string, error) {
	page, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(supplyPage)))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	bot, err := os.ReadFile(filepath.Join(top, ".github", "dependabot.yml"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var found []string
	err = filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); file != top && name != ".github" &&
				(name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(top, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		ecosystem := ecosystemOf(name)
		if ecosystem == "" && !strings.HasSuffix(name, ".go") || slices.Contains(aboutParts, name) {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, part := range partsOf(string(text), ecosystem) {
			if !strings.Contains(string(page), "`"+part+"`") {
				found = append(found, name+" takes "+part+", which "+supplyPage+" does not list")
			}
		}
		if ecosystem == "" {
			return nil
		}
		folder := path.Join("/", path.Dir(name))
		if ecosystem == "github-actions" {
			folder = "/" // Dependabot finds the workflows below it
		}
		if !strings.Contains(string(bot), "ecosystem: "+ecosystem+"\n    directory: "+folder+"\n") {
			found = append(found, folder+" has parts for which .github/dependabot.yml has no entry: "+ecosystem)
		}
		return nil
	})
	slices.Sort(found)
	return slices.Compact(found), err
}

// aboutParts are files that name parts without taking them.
var aboutParts = []string{"internal/house/caught_test.go", "internal/test/testenv/testenv_test.go"}

// ecosystemOf returns Dependabot's name for what a file takes, apart from Go
// modules.
func ecosystemOf(name string) string {
	switch dir, base := path.Split(name); {
	case base == "Dockerfile":
		return "docker"
	case base == "package-lock.json":
		return "npm"
	case dir == ".github/workflows/":
		return "github-actions"
	}
	return ""
}

// partsOf lists the parts that a Go file takes, or a file of an ecosystem.
func partsOf(text, ecosystem string) []string {
	var kinds []*regexp.Regexp
	// Most Go files have no such call. Looking for one is faster.
	if strings.Contains(text, "Program(") || strings.Contains(text, "Package(") || strings.Contains(text, "install") {
		kinds = append(kinds, debianCall)
	}
	if ecosystem != "" {
		kinds = []*regexp.Regexp{debianStep, imageStep, imageFrom, actionStep, lockedModule}
	}
	var parts []string
	for _, kind := range kinds {
		for _, m := range kind.FindAllStringSubmatch(text, -1) {
			parts = append(parts, strings.Fields(strings.Join(m[1:], ""))...) // all groups but one are empty
		}
	}
	return slices.DeleteFunc(parts, func(part string) bool { return part == "scratch" || strings.HasPrefix(part, "-") })
}
