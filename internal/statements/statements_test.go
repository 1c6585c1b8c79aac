package statements_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/croft-dev/croft/internal/statements"
)

func TestParseSplitsAFileByNames(t *testing.T) {
	set, err := statements.Parse(`-- About the whole file.

-- name: claim
-- A comment of any length.
UPDATE item
    -- An indented comment.
    SET state = 'running' -- a comment that stays

WHERE id = ?1
-- name: pragmas
PRAGMA a = 1;
PRAGMA b = 2;
`)
	if err != nil {
		t.Fatal(err)
	}
	want := statements.Set{
		"claim":   "UPDATE item\n    SET state = 'running' -- a comment that stays\nWHERE id = ?1",
		"pragmas": "PRAGMA a = 1;\nPRAGMA b = 2;",
	}
	if !maps.Equal(set, want) {
		t.Errorf("Parse returned %q, want %q", set, want)
	}
}

func TestParseReadsLineEndsOfWindows(t *testing.T) {
	set, err := statements.Parse("-- name: one\r\nSELECT\r\n1\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Must("one"); got != "SELECT\n1" {
		t.Errorf("Parse returned %q", got)
	}
}

func TestParseRefusesMalformedFiles(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty file", "", "no statement"},
		{"comments only", "-- nothing here\n", "no statement"},
		{"SQL before the first name", "\nSELECT 1\n-- name: a\nSELECT 2", "line 2"},
		{"duplicate name", "-- name: a\nSELECT 1\n-- name: a\nSELECT 2", `"a" is used twice`},
		{"name without a statement", "-- name: a\n-- name: b\nSELECT 2", `no statement follows the name "a"`},
		{"last name without a statement", "-- name: a\nSELECT 1\n-- name: b\n", `no statement follows the name "b"`},
		{"missing name", "-- name:\nSELECT 1", "is no name"},
		{"two words", "-- name: a b\nSELECT 1", "is no name"},
		{"name written without spaces", "--name:A\nSELECT 1", "is no name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, err := statements.Parse(c.text)
			if err == nil {
				t.Fatalf("Parse returned %q and no error", set)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse returned the error %q, want one that contains %q", err, c.want)
			}
		})
	}
}

func TestMustLoadJoinsFiles(t *testing.T) {
	set := statements.MustLoad(fstest.MapFS{
		"queries/a.sql": {Data: []byte("-- name: one\nSELECT 1\n")},
		"queries/b.sql": {Data: []byte("-- name: two\nSELECT 2\n")},
		"other/c.sql":   {Data: []byte("not read")},
	}, "queries/*.sql")
	want := statements.Set{"one": "SELECT 1", "two": "SELECT 2"}
	if !maps.Equal(set, want) {
		t.Errorf("MustLoad returned %q, want %q", set, want)
	}
}

func TestMistakesPanic(t *testing.T) {
	fsys := fstest.MapFS{
		"twice/a.sql": {Data: []byte("-- name: one\nSELECT 1\n")},
		"twice/b.sql": {Data: []byte("-- name: one\nSELECT 2\n")},
		"wrong/a.sql": {Data: []byte("SELECT 1\n")},
	}
	for _, c := range []struct {
		name, want string
		do         func()
	}{
		{"a name in two files", "twice/b.sql", func() { statements.MustLoad(fsys, "twice/*.sql") }},
		{"a malformed file", "wrong/a.sql", func() { statements.MustLoad(fsys, "wrong/*.sql") }},
		{"no file", "none/*.sql", func() { statements.MustLoad(fsys, "none/*.sql") }},
		{"a malformed pattern", "[", func() { statements.MustLoad(fsys, "[") }},
		{"an unknown name", `"two"`, func() { statements.Set{"one": "SELECT 1"}.Must("two") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("it panicked with %q, want a text that contains %q", got, c.want)
				}
			}()
			c.do()
		})
	}
}
