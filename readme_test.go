package croft_test

import (
	"os"
	"strings"
	"testing"
)

// TestTheReadmeShowsTheExample: the program in the README is the function of
// Example that a test runs.
func TestTheReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(readme), "```go\n")
	_, shown, _ = strings.Cut(shown, "\n)\n\n") // the imports
	shown, _, closed := strings.Cut(shown, "```\n")

	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, run, _ := strings.Cut(string(source), "publish := func(ctx context.Context) error {\n")
	run, _, found := strings.Cut(run, "\n\t}\n\n")
	if !closed || !found {
		t.Fatal("the README has no program, or the example is gone")
	}
	run = strings.ReplaceAll(run, "\n\t\t", "\n")
	run = strings.NewReplacer("shared,", `"/shared/croft",`, "target,", `"out/today.json",`).Replace(run[2:])
	if strings.TrimSpace(shown) != run {
		t.Errorf("the README shows\n%s\nthe example runs\n%s", shown, run)
	}
	for _, imported := range []string{`"github.com/croft-dev/croft"`, `"github.com/croft-dev/croft/backend/file"`} {
		if !strings.Contains(string(readme), "\n\t"+imported) {
			t.Errorf("the README does not import %s", imported)
		}
	}
}
