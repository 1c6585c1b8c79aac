package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// typescriptClient is the folder of the npm package @croft/client.
var typescriptClient = filepath.Join("..", "..", "clients", "typescript")

// TestTypeScriptClientHasATestForEveryRow compares the names of its tests with
// clients/conformance.md.
func TestTypeScriptClientHasATestForEveryRow(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"43": "the package has no helpers for SQL",
		"44": "the package has no helpers for SQL",
		"62": "Node cannot fork without starting another program",
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "clients", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(typescriptClient, "test", "*.test.ts"))
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*test\("(\d\d) `).FindAllSubmatch(text, -1) {
			tested[string(m[1])] = true
		}
	}
	rows := regexp.MustCompile(`(?m)^\| (\d\d) \| (.*) \|$`).FindAllSubmatch(page, -1)
	if len(rows) < 40 || len(tested) < 40 {
		t.Fatalf("found %d rows and tests for %d", len(rows), len(tested))
	}
	for _, row := range rows {
		number := string(row[1])
		switch why := elsewhere[number]; {
		case tested[number] && why != "":
			t.Errorf("row %s is tested, although %s", number, why)
		case !tested[number] && why == "":
			t.Errorf("no test for row %s: %s", number, row[2])
		}
		delete(tested, number)
	}
	for number := range tested {
		t.Errorf("there are tests for row %s, which the page does not have", number)
	}
}
