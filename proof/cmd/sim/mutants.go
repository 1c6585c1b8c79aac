package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/croft-dev/croft/proof/sim"
)

// finding says whether a mutant was found, and how.
type finding struct {
	Mutant  string        `json:"mutant"`
	Part    string        `json:"part"`
	Says    string        `json:"says"`
	Profile string        `json:"profile,omitempty"`
	Killed  bool          `json:"killed"` // by a law it should break, or by its test
	By      string        `json:"by,omitempty"`
	Seed    uint64        `json:"seed,omitempty"`
	Seeds   int           `json:"seeds,omitempty"` // tried
	Took    time.Duration `json:"took"`
}

// mutants runs all broken variants, or the variant of --mutant.
func mutants(ctx context.Context, s *settings, out, errOut io.Writer) int {
	code, all, survivors := 0, 0, 0
	for _, m := range sim.Mutants {
		if s.mutant != "" && m.Name != s.mutant {
			continue
		}
		began := time.Now()
		f, err := find(ctx, m, s.first, s.seeds)
		if err != nil {
			say(errOut, "sim: %v\n", err)
		}
		f.Took = time.Since(began)
		all++
		if !f.Killed || err != nil {
			code = 1
			survivors++
		}
		if s.json {
			print1(out, f)
			continue
		}
		by := f.By
		if !f.Killed {
			by = "SURVIVES " + by
		}
		if f.Seeds > 0 {
			by = fmt.Sprintf("%4d seeds of %-8s %s", f.Seeds, m.Profile, by)
		}
		say(out, "%-6s %-23s %-66s %s\n", m.Part, m.Name, m.Says, by)
	}
	if !s.json {
		say(out, "%d mutants, %d not found as expected\n", all, survivors)
	}
	return code
}

// find runs seeds until the mutant breaks a law, or it runs the mutant's test.
// A mutant of the engine needs a build of its own.
func find(ctx context.Context, m *sim.Mutant, first uint64, seeds int) (f finding, err error) {
	f = finding{Mutant: m.Name, Part: m.Part, Says: m.Says, Profile: m.Profile}
	if m.Test == "" && m.Built() {
		r, n := m.Kill(first, seeds)
		if f.Seeds = n; r != nil {
			f.Killed, f.By, f.Seed = slices.Contains(m.Laws, r.Broken.Law), "law "+string(r.Broken.Law), r.Case.Seed
		}
		return f, nil
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	if m.Test != "" {
		f.By = "test " + m.Test
		f.Killed, err = m.Patch.Fails(ctx, dir, m.Test)
		return f, err
	}
	program, err := build(ctx, m, dir)
	if err != nil {
		return f, err
	}
	out, failed := exec.CommandContext(ctx, program, "--mutants", "--mutant", m.Name, "--json",
		"--first", fmt.Sprint(first), "--seeds", fmt.Sprint(seeds)).Output()
	if err := json.Unmarshal(out, &f); err != nil { // the status is 1 if the mutant survives
		return f, fmt.Errorf("%s: %w: %q: %w", m.Name, failed, out, err)
	}
	return f, nil
}

// build builds this command with the patch of a mutant, into dir.
func build(ctx context.Context, m *sim.Mutant, dir string) (program string, err error) {
	return m.Patch.Build(ctx, dir, "proof/cmd/sim", "github.com/croft-dev/croft/proof/sim.patched="+m.Name)
}

// patched runs this command again, built with the patch of a mutant.
func patched(ctx context.Context, m *sim.Mutant, args []string, out, errOut io.Writer) int {
	dir, err := os.MkdirTemp("", "mutant")
	if err == nil {
		defer os.RemoveAll(dir)
		var program string
		if program, err = build(ctx, m, dir); err == nil {
			c := exec.CommandContext(ctx, program, args...)
			c.Stdout, c.Stderr = out, errOut
			if err = c.Run(); c.ProcessState != nil {
				return c.ProcessState.ExitCode()
			}
		}
	}
	say(errOut, "sim: %v\n", err)
	return 1
}
