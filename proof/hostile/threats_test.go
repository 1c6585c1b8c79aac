package hostile

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every defence in the document has a test, and every test that it names
// exists.
func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	top := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(top, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	there, declared := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != top:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		code, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(code, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`")
	rows := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| attack |") {
			rows = 1
		}
		if !strings.HasPrefix(line, "|") {
			rows = 0
		}
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if !there[m[1]] {
				t.Errorf("%s is no test of this module", m[1])
			}
		}
		if rows > 2 && !named.MatchString(line) {
			t.Errorf("no test shows it: %s", line)
		}
		if rows > 0 {
			rows++
		}
	}
}
