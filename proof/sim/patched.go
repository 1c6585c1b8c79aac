package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/croft-dev/croft/proof/patch"
)

// patched is the mutant with whose patch this simulator was built. The linker
// sets it.
var patched string

// Built reports whether this simulator can run the mutant.
func (m *Mutant) Built() bool {
	return m.Name == patched || patched == "" && m.Patch == patch.Patch{}
}

// Build builds the command sim with the mutant's patch, into dir.
func (m *Mutant) Build(ctx context.Context, dir string) (program string, err error) {
	return m.Patch.Build(ctx, dir, "proof/cmd/sim", "github.com/croft-dev/croft/proof/sim.patched="+m.Name)
}

// Finding is how a mutant was found, as the command sim prints it.
type Finding struct {
	Mutant  string `json:"mutant"`
	Place   string `json:"place"`
	Says    string `json:"says"`
	Profile string `json:"profile,omitempty"`
	Killed  bool   `json:"killed"` // by one of the laws that it should break, or by its test
	By      string `json:"by,omitempty"`
	Seed    uint64 `json:"seed,omitempty"`
	Seeds   int    `json:"seeds,omitempty"` // that were tried
}

// Find runs seeds until the mutant breaks a law, or runs the mutant's test. A
// mutant of the engine is built first.
func (m *Mutant) Find(ctx context.Context, first uint64, seeds int) (Finding, error) {
	f := Finding{Mutant: m.Name, Place: m.Place, Says: m.Says, Profile: m.Profile}
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
	program, err := m.Build(ctx, dir)
	if err != nil {
		return f, err
	}
	out, runErr := exec.CommandContext(ctx, program, "--mutants", "--mutant", m.Name, "--json",
		"--first", fmt.Sprint(first), "--seeds", fmt.Sprint(seeds)).Output()
	if err := json.Unmarshal(out, &f); err != nil { // the status is 1 if it survives
		return f, fmt.Errorf("%s: %w: %q: %w", m.Name, runErr, out, err)
	}
	return f, nil
}
