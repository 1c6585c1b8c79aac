package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The text around the figures stays, and the figures of runs add up.
func TestTheFiguresAreWrittenBetweenTheirLines(t *testing.T) {
	dir := t.TempDir()
	p := &program{page: filepath.Join(dir, "proof.md"), book: filepath.Join(dir, "proof.json")}
	if err := os.WriteFile(p.page, []byte("# Proof\n\n"+begin+"\nof yesterday\n"+end+"\n\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.run = &run{
			At: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Seconds: 1800, FirstSeed: 1, NextSeed: 2001, Seeds: 20000, Requests: 12345678, LeastRequests: 512, Faults: 9,
			Mutants: 348, Killed: 348, Cuts: 70000, Folders: 30000, States: 18385542, Targets: 11, Inputs: 220000,
			Profiles: []profile{{"s3", 4000, 2500000, map[string]map[string]int64{"fault": {"wipe": 3, "pause": 1200}, "transition": {"renew": 7}, "refusal": {"held": 9}}}},
			Parts:    []outcome{{"variants", 60, true}, {"sim", 100, true}, {"fuzz", 40, true}, {"cuts", 90, true}, {"model", 61, true}, {"chaos", 600, true}},
			Chaos:    []chaosRun{{Backend: "redis", Guarded: true, TookNS: 6e10, Operations: 1000}, {Backend: "dir", Lost: 3, FirstLoss: 2e9, TookNS: 1e9}},
		}
		earlier, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.write(earlier); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(p.page)
	if err != nil {
		t.Fatal(err)
	}
	if runs, err := p.read(); err != nil || len(runs) != 2 || runs[0].Profiles != nil || len(runs[1].Profiles) != 1 {
		t.Errorf("the book: %v, %+v", err, runs)
	}
	for _, want := range []string{
		"# Proof\n", "\nmore\n", "Runs so far: 2, failed: 0. Together they did:", "- simulator: 40,000 seeds, none twice; 24,691,356 requests, 18 faults", "- power cuts: 140,000\n- everything: 1.0 hours\n", "| s3 | 4,000 | 2,500,000 | 2 kinds, 1,203 times; rarest: wipe, 3 | 1 kinds, 7 times; rarest: renew, 7 |", "348 of 348 found", "20,000 seeds of at least 512 requests",
		"70,000 cuts, 30,000 different folders recovered | 1m30s | held", "| 18,385,542 states |", "| fuzzing | 11 targets, 220,000 inputs | 40s | held |", "2 backends", "| dir | no | 1s |", "3, the first after 2s", "| redis | yes | 1m0s | 1,000 |",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is not in the page:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "yesterday") || strings.Index(string(page), "| dir") > strings.Index(string(page), "| redis") {
		t.Errorf("old figures, or out of order:\n%s", page)
	}
}

// If the page lacks the two lines, nothing is written.
func TestAPageWithoutTheTwoLinesIsNamed(t *testing.T) {
	dir := t.TempDir()
	p := &program{page: filepath.Join(dir, "proof.md"), book: filepath.Join(dir, "proof.json"), run: &run{}}
	if err := os.WriteFile(p.page, []byte("# Proof\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.write(nil); err == nil || !strings.Contains(err.Error(), begin) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(p.book); err == nil {
		t.Error("the book was written")
	}
}

// The summary names each failure and the command that shows it.
func TestTheSummaryNamesFailuresAndCommands(t *testing.T) {
	var told, out bytes.Buffer
	p := &program{run: &run{Parts: []outcome{{"sim", 3, false}}}, progress: newProgress(&told)}
	p.fail("sim", "go run ./proof/cmd/sim --profile s3 --seed 81", "law %d", 5)
	p.summary(&out)
	if !strings.Contains(told.String(), "sim       WRONG: law 5") || !strings.Contains(out.String(), "FAILED") || !strings.Contains(out.String(), "again: go run ./proof/cmd/sim --profile s3 --seed 81") {
		t.Errorf("%s%s", told.String(), out.String())
	}
}

// A part that ran nothing counts as failed.
func TestAPartThatRanNothingHasNotHeld(t *testing.T) {
	for _, figures := range []int64{0, 7} {
		p := &program{run: &run{}, progress: newProgress(io.Discard)}
		p.part(t.Context(), part{"model", func(p *program, _ context.Context) error { p.run.States = figures; return nil }})
		if held := len(p.failures) == 0 && p.run.Parts[0].Held; held != (figures > 0) {
			t.Errorf("%d states: %+v, %+v", figures, p.run.Parts, p.failures)
		}
	}
}

// -only accepts the names of parts and nothing else.
func TestPartsAreKnownByName(t *testing.T) {
	p := &program{seeds: 1, inputs: 1, chaos: 1, control: 1, only: []string{"sim", "weather"}}
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "variants, chaos, fuzz, sim, cuts, crowds, model, takeovers, peers") {
		t.Errorf("%v", err)
	}
	if p.only = []string{"variants", "model"}; p.check() != nil {
		t.Error(p.check())
	}
}

// Lines are printed whole, even if they arrive in pieces.
func TestLinesAreSaidWhole(t *testing.T) {
	var told bytes.Buffer
	w := newProgress(&told).lines("cuts")
	for _, piece := range []string{"one\ntw", "o\n\nthree"} {
		if _, err := w.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.ReplaceAll(told.String(), "  0:00  cuts      ", "> "); got != "> one\n> two\n" {
		t.Errorf("%q", got)
	}
}
