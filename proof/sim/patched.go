package sim

import "github.com/croft-dev/croft/proof/patch"

// patched is the mutant with whose patch this simulator was built. The linker
// sets it, as proof/cmd/sim asks for.
var patched string

// inEngine is a mutant of the engine. A law or a test finds it: the methods say
// which, and what is changed.
func inEngine(name, says string) *Mutant {
	return &Mutant{Name: name, Place: "client", Says: says}
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

// Built reports whether this simulator can run the mutant.
func (m *Mutant) Built() bool {
	return m.Name == patched || patched == "" && m.Patch == patch.Patch{}
}
