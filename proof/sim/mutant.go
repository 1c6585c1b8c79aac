package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/proof/patch"
	"github.com/croft-dev/croft/tenure"
)

// Mutant is a broken variant: one thing done wrong at one place. A simulation that does not notice it proves nothing about the sound one.
type Mutant struct {
	Name string
	// Place is what is broken: law, store, guard or client.
	Place string
	// Says is what it does wrong.
	Says string
	// Profile is the world in which it shows, Laws those that it is expected to break there first.
	Profile string
	Laws    []Law
	// Test finds a mutant of the engine that breaks no law: a package and the
	// name of a test.
	Test string

	// Apply stands in for tenure.Apply in the stores that are modelled whole: redis, postgres, clocks.
	Apply func(rec tenure.Record, req tenure.Request, now time.Time) (tenure.Record, bool, error)
	// Admit stands in for fence.Mark.Admit and Raise in every guard.
	Admit func(m fence.Mark, s fence.Stamp) (fence.Mark, error)
	// Bend is a deviation at a place in the models.
	Bend Bend
	// Patch is a change of the engine. The simulator must be built with it.
	Patch patch.Patch
}

// Bend is a place in the models at which a mutant does something else.
type Bend int

// The places.
const (
	Straight              Bend = iota
	MonotonicClock             // a client looks at a clock that stands still in suspend
	DateIsExact                // a client takes a date of whole seconds for the time
	EarliestIsTold             // a store with a coarse clock tells what is left of a term from the earliest time that it may be
	UnconditionalPut           // a register writes whatever it held
	BlindDrop                  // a register drops whatever it holds
	ConflictIsDone             // a register takes 409 for done
	LostIsDone                 // a register takes a lost reply for done
	SkippedIsDone              // a store says of rows it skipped that they were renewed
	ClockBeforeLock            // a store looks at the clock before it has the row
	CheckThenWrite             // a guard checks, and writes later
	RaiseIsForgotten           // a guard does not keep what it was raised to
	NoFileLock                 // a guard's file has no lock
	WriteThenMark              // a guard writes the content before the mark
	AwardIsFullTerm            // a desk says that all of the TTL is left of what a bid was granted
	AwardByReleasersClock      // a desk reckons what is left from the clock of whoever released the key
	AwardFromLastBid           // a desk reckons it from the last bid with the same secret
	AwardIsDatedBySender       // a store dates what a bid is granted with when the release was sent
	AwardToAbsent              // a store grants a key to a bid that is not in its place any more
	AwardAgain                 // a store leaves a bid in its place that was granted, and does not ask whether its secret was used
	AwardOverHold              // a store grants a key to a bid within a hold
	AwardAfterRefusal          // a store grants a key to a bid though the release was refused
	ClaimedWhileGiven          // a desk answers for what it is giving back
	OnlyTheTold                // a desk does not notice that the server has answered for what a bid was granted
	BlindManifest              // a guard puts its manifest without a condition
)

// is reports whether the mutant bends this place; nil is the sound variant.
func (m *Mutant) is(b Bend) bool { return m != nil && m.Bend == b }

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

// FindMutant is the mutant of a name.
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

// Kill runs seeds until a law is broken. It returns that run, and how many seeds it took; nil if none of them breaks one.
func (m *Mutant) Kill(first uint64, seeds int) (*Result, int) {
	for i := range seeds {
		if r := Run(Case{Profile: m.Profile, Seed: first + uint64(i), Mutant: m.Name}, false); r.Broken != nil {
			return r, i + 1
		}
	}
	return nil, seeds
}
