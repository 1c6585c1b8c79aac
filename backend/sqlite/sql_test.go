package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryStatementIsUsed finds statements in the folder queries that no code
// asks for. The opposite, code that asks for a missing statement, panics when
// the program starts.
func TestEveryStatementIsUsed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	for name := range queries {
		if !strings.Contains(code.String(), `queries.Must("`+name+`")`) {
			t.Errorf("no code asks for the statement %q", name)
		}
	}
}
