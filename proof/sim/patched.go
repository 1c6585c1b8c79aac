package sim

import "github.com/croft-dev/croft/proof/patch"

// patched names the mutant whose patch is built into this simulator. The linker
// sets it for proof/cmd/sim.
var patched string

// inEngine makes a mutant of the engine. The methods below add the law or the
// test that finds it, and its patch.
func inEngine(name, says string) *Mutant {
	return &Mutant{Name: name, Part: "client", Says: says}
}

func (m *Mutant) byLaw(profile string, laws ...Law) *Mutant {
	m.Profile, m.Laws = profile, laws
	return m
}

func (m *Mutant) byTest(name string) *Mutant {
	m.Test = "internal/engine." + name
	return m
}

func (m *Mutant) patch(file, old, text string) *Mutant {
	m.Patch = patch.Patch{File: "internal/" + file, Old: old, New: text}
	return m
}

// Built reports whether this build can run the mutant.
func (m *Mutant) Built() bool {
	return m.Name == patched || patched == "" && m.Patch == patch.Patch{}
}
