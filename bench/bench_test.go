package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The benchmarks must at least run to their end. The tests ignore times.
func TestEveryWorkloadRuns(t *testing.T) {
	tiny := func(t *testing.T, pick string) (*bench, string) {
		t.Helper()
		var out bytes.Buffer
		b := &bench{
			out: &out, dir: t.TempDir(), tb: t, rounds: 1, leases: 100,
			span: 5 * time.Millisecond, passes: 3, passFor: time.Second, patience: time.Second, kept: 100, keepFor: 100 * time.Millisecond, divide: 100,
		}
		if err := b.all(pick); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		return b, out.String()
	}
	for pick, rows := range map[string][]string{
		"^(dir|combine|run)$": {"croft: acquire + release", "64 goroutines", "overhead of run"},
		"^redis-":             {"floor", "croft", "redislock", "redsync", "rueidislock"},
		"^postgres-":          {"floor", "croft", "pglock", "advisory"},
		"^current$":           {"Redis", "PostgreSQL", "etcd", "SQLite", "directory"},
		"^python$":            {"redis-py: Lock", "croft.lease, at a server", "croft acquire"},
		"^told$":              {"Redis", "PostgreSQL", "etcd", "SQLite", "directory"},
	} {
		t.Run(pick, func(t *testing.T) {
			b, out := tiny(t, pick)
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

func TestMedianIsTheMiddle(t *testing.T) {
	if m := median([]time.Duration{3, 1, 2}); m != 2 {
		t.Errorf("median of 3, 1, 2 is %d", m)
	}
}
