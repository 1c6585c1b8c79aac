package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheFiguresAreWrittenBetweenTheirLines: what people wrote around them stays, and runs add up.
func TestTheFiguresAreWrittenBetweenTheirLines(t *testing.T) {
	dir := t.TempDir()
	p := &program{page: filepath.Join(dir, "proof.md"), book: filepath.Join(dir, "proof.json")}
	if err := os.WriteFile(p.page, []byte("# Proof\n\n"+begin+"\nold\n"+end+"\n\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.run = &run{
			At: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Seconds: 1800, Seeds: 20000, Requests: 12345678, Faults: 9, Mutants: 41, Killed: 41, Cuts: true, Model: true,
			Chaos: []storm{{Backend: "redis", Guarded: true, TookNS: 6e10, Operations: 1000}, {Backend: "dir", Lost: 3, FirstLoss: 2e9, TookNS: 1e9}},
		}
		if err := p.write(); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(p.page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Proof\n", "\nmore\n", "2 of them: 40,000 seeds with 24,691,356 requests", "41 of 41 broken variants", "| dir | no | 1s |", "3, the first after 2s", "| redis | yes | 1m0s | 1,000 |"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is not in the page:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "old") || strings.Index(string(page), "| dir") > strings.Index(string(page), "| redis") {
		t.Errorf("old figures, or out of order:\n%s", page)
	}
}

// TestAPageWithoutAPlaceIsNamed: nothing is written then.
func TestAPageWithoutAPlaceIsNamed(t *testing.T) {
	dir := t.TempDir()
	p := &program{page: filepath.Join(dir, "proof.md"), book: filepath.Join(dir, "proof.json"), run: &run{}}
	if err := os.WriteFile(p.page, []byte("# Proof\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.write(); err == nil || !strings.Contains(err.Error(), begin) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(p.book); err == nil {
		t.Error("the book was written")
	}
}
