package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	adapterRow = regexp.MustCompile(`(?m)^\| \[[^\]]*\]\(\.\./(contrib/\w+)\)[^|]*\| (.*) \|$`)
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	anySpace   = regexp.MustCompile(`\s+`)
)

// untriedLines reports code in the guide's table of schedulers that the
// example of the adapter does not have. In the table, an ellipsis is any code.
// It also reports adapters without a row.
func untriedLines(top string) ([]string, error) {
	guide, err := os.ReadFile(filepath.Join(top, "docs", "guide.md"))
	if err != nil {
		return nil, err
	}
	var found []string
	shown := map[string]bool{}
	for _, row := range adapterRow.FindAllStringSubmatch(string(guide), -1) {
		shown[row[1]] = true
		example, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(row[1]), "example_test.go"))
		if err != nil {
			return nil, err
		}
		for _, span := range codeSpan.FindAllStringSubmatch(row[2], -1) {
			parts := strings.Split(anySpace.ReplaceAllString(span[1], ""), "…")
			for i, part := range parts {
				parts[i] = regexp.QuoteMeta(part)
			}
			line := regexp.MustCompile("(?s)" + strings.Join(parts, ".*"))
			if !line.MatchString(anySpace.ReplaceAllString(string(example), "")) {
				found = append(found, "docs/guide.md shows "+span[0]+", which the examples of "+row[1]+" do not run")
			}
		}
	}
	adapters, err := filepath.Glob(filepath.Join(top, "contrib", "*", "example_test.go"))
	for _, file := range adapters {
		if name := "contrib/" + filepath.Base(filepath.Dir(file)); !shown[name] {
			found = append(found, "docs/guide.md has no lines for "+name)
		}
	}
	return found, err
}

// TestTheGuidesLinesForSchedulersAreTheAdaptersExamples: go test compiles and
// runs the examples.
func TestTheGuidesLinesForSchedulersAreTheAdaptersExamples(t *testing.T) {
	found, err := untriedLines(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestLinesThatNoExampleRunsAreCaught(t *testing.T) {
	const row = "| [tea](../contrib/tea) | "
	for name, c := range map[string]struct {
		row  string
		want int
	}{
		"as in the example": {row + "`pot.Brew(ctx, \"green\")`<br>`Cup{Tea: pot, …}`, twice `cup.Drink()` |\n", 0},
		"another argument":  {row + "`pot.Brew(ctx, \"black\")` |\n", 1},
		"another field":     {row + "`Cup{…, Milk: true}` |\n", 1},
		"no row":            {"| cron | `croft run tea` |\n", 1},
	} {
		found, err := untriedLines(write(t, map[string]string{
			"docs/guide.md":               "| your scheduler | lines |\n|---|---|\n" + c.row,
			"contrib/tea/example_test.go": "\tif err := pot.Brew(ctx, \"green\"); err != nil {}\n\tcup := Cup{\n\t\tTea: pot, Sugar: 1,\n\t}\n\tcup.Drink()\n",
		}, nil))
		if err != nil || len(found) != c.want {
			t.Errorf("%s: %q, %v", name, found, err)
		}
	}
}
