package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/proof/patch"
	"github.com/croft-dev/croft/tenure"
)

// Mutant is a broken variant: one thing done wrong in one part. If a
// simulation does not notice it, it proves nothing about the sound code. A
// mutant without Apply, Admit and Patch is in the models, which know it by its
// name.
type Mutant struct {
	Name string
	// Part is the broken part: law, store, guard or client.
	Part string
	// Says describes the fault.
	Says string
	// Profile is the world that shows it. Laws are those that it may break
	// first.
	Profile string
	Laws    []Law
	// Test names the test that finds a mutant of the engine which breaks no
	// law: a package and a test.
	Test string

	// Apply replaces tenure.Apply, in the stores that are modelled whole:
	// redis, postgres, clocks.
	Apply func(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error)
	// Admit replaces fence.Mark.Admit and Raise in every guard.
	Admit func(m fence.Mark, s fence.Stamp) (fence.Mark, error)
	// Patch is a change of the engine. The simulator must be built with it.
	Patch patch.Patch
}

// is reports whether the mutant has that name. The models ask where it differs.
// nil is the sound variant.
func (m *Mutant) is(name string) bool { return m != nil && m.Name == name }

func mutantOf(name string) *Mutant {
	if name == "" {
		return nil
	}
	m, err := FindMutant(name)
	if err == nil && !m.Built() {
		err = fmt.Errorf("the simulator was not built with the patch of %s", name)
	}
	if err != nil {
		panic(err)
	}
	return m
}

// FindMutant returns the mutant of that name.
func FindMutant(name string) (*Mutant, error) {
	names := make([]string, len(Mutants))
	for i, m := range Mutants {
		if m.Name == name {
			return m, nil
		}
		names[i] = m.Name
	}
	return nil, fmt.Errorf("there is no mutant %q; there are %s", name, strings.Join(names, ", "))
}

// Kill runs seeds until a law is broken. It returns that run and the number of
// seeds tried. The run is nil if no law was broken.
func (m *Mutant) Kill(first uint64, seeds int) (*Result, int) {
	for i := range seeds {
		if r := Run(Case{Profile: m.Profile, Seed: first + uint64(i), Mutant: m.Name}, false); r.Broken != nil {
			return r, i + 1
		}
	}
	return nil, seeds
}
