package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tiny returns a bench that shows that a workload runs, not how fast.
func tiny(t *testing.T) *bench {
	t.Helper()
	return &bench{
		out: io.Discard, dir: t.TempDir(), tb: t, rounds: 1, leases: 100,
		span: 5 * time.Millisecond, passes: 3, passFor: time.Second, patience: time.Second,
		kept: 100, keepFor: 100 * time.Millisecond, divide: 100,
	}
}

// The benchmarks must at least run to their end. The tests ignore times.
func TestEveryWorkloadRuns(t *testing.T) {
	for pick, rows := range map[string][]string{
		"^(dir|combine|run|mcp)$": {"croft: acquire + release", "64 goroutines", "overhead of run", "fenced calls"},
		"^redis-":                 {"floor", "croft", "redislock", "redsync", "rueidislock"},
		"^postgres-":              {"floor", "croft", "pglock", "advisory"},
		"^current$":               {"Redis", "PostgreSQL", "etcd", "SQLite", "directory"},
		"^python$":                {"redis-py: Lock", "croft.lease, at a server", "croft acquire"},
		"^told$":                  {"Redis", "PostgreSQL", "etcd", "SQLite", "directory"},
	} {
		t.Run(pick, func(t *testing.T) {
			var said bytes.Buffer
			b := tiny(t)
			b.out = &said
			if err := b.all(workloads, pick); err != nil {
				t.Fatalf("%v\n%s", err, &said)
			}
			out := said.String()
			for _, want := range rows {
				if !strings.Contains(out, want) {
					t.Errorf("nothing about %q in:\n%s", want, out)
				}
			}
			page := filepath.Join(t.TempDir(), "page.md")
			if err := b.report.writePage(page); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range b.report.Tables {
				if !strings.Contains(string(text), "## "+table.Title+"\n") {
					t.Errorf("the page has no %q", table.Title)
				}
			}
			figures := filepath.Join(t.TempDir(), "figures.json")
			if err := b.report.writeJSON(figures); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The figures of docs/scale.md are written between two lines. The rest of the
// page is people's.
func TestScaleFillsInItsPage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "scale.md")
	if err := os.WriteFile(page, []byte("before\n"+figuresBegin+"\nof yesterday\n"+figuresEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := tiny(t)
	if err := b.scale(page, ""); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before\n" + figuresBegin, "### One more idle lease", "### One more waiter", "| 20 clients |", "| Redis |",
		figuresEnd + "\nafter\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "of yesterday") {
		t.Errorf("the page still has its old figures:\n%s", text)
	}
	if err := b.report.writeFigures(filepath.Join(t.TempDir(), "none.md")); err == nil {
		t.Error("figures were written to a page that does not exist")
	}
}

func TestMedianIsTheMiddle(t *testing.T) {
	if m := median([]time.Duration{3, 1, 2}); m != 2 {
		t.Errorf("median of 3, 1, 2 is %d", m)
	}
}
