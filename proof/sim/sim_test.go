package sim

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

const (
	// fewSeeds is the number of seeds of each profile in a test run. `make
	// proof` runs thousands.
	fewSeeds = 12
	// mostSeeds is how many seeds of a profile are run to see something rare.
	mostSeeds = 100
)

// report shrinks a broken seed, and prints the smallest case.
func report(t *testing.T, r *Result) {
	t.Helper()
	small := Shrink(r.Case, 200)
	t.Errorf("%s: %v\nshrunk to %d faults:\n%s\n%v", r.Case, r.Broken, len(small.Fired), strings.Join(small.Timeline, "\n"), small.Broken)
}

// TestTheLawsHold runs all profiles. Each must show each of its faults. All
// together must show everything else that can be seen. A profile that lacks
// something runs with more seeds.
func TestTheLawsHold(t *testing.T) {
	seen, seeds := Coverage{}, map[*Profile]int{}
	run := func(p *Profile, n int) Coverage {
		soak := Soaking{Profile: p.Name, First: uint64(1 + seeds[p]), Seeds: n, Ops: 250, Workers: runtime.GOMAXPROCS(0)}.Run()
		for _, r := range soak.Broken {
			report(t, r)
		}
		if soak.LeastOps < 200 {
			t.Errorf("%s: a seed made %d requests, fewer than 200", p.Name, soak.LeastOps)
		}
		seeds[p] += n
		seen.Add(soak.Coverage)
		return soak.Coverage
	}
	if testing.Short() { // too few seeds to see rare things
		for _, p := range Profiles {
			run(p, fewSeeds)
		}
		return
	}
	for _, p := range Profiles {
		own := run(p, fewSeeds)
		for s, more := p.lacking(own); more; s, more = p.lacking(own) {
			if seeds[p] >= mostSeeds || t.Failed() {
				t.Errorf("%s: %s did not happen in %d seeds", p.Name, s.Name, seeds[p])
				break
			}
			own.Add(run(p, 5))
		}
	}
	for _, p := range Profiles {
		for missing := seen.Missing(p.Expected()); len(missing) > 0; missing = seen.Missing(p.Expected()) {
			if seeds[p] >= mostSeeds || t.Failed() {
				t.Errorf("%s: nobody has seen %q in %d seeds", p.Name, missing, seeds[p])
				break
			}
			run(p, 5)
		}
	}
}

// lacking returns a fault that the profile should show and has not, if any.
func (p *Profile) lacking(c Coverage) (Sight, bool) {
	for _, s := range p.Expected() {
		if s.Kind == "fault" && c[s] == 0 {
			return s, true
		}
	}
	return Sight{}, false
}

// The same case must give the same timeline, to the byte, whatever else the
// process does.
func TestOneSeedIsOneRun(t *testing.T) {
	for _, p := range Profiles {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			c := Case{Profile: p.Name, Seed: 7, Ops: 200}
			one, two := Run(c, true), Run(c, true)
			if !slices.Equal(one.Timeline, two.Timeline) || len(one.Timeline) < 100 {
				t.Errorf("two runs of %s differ: %d lines and %d", c, len(one.Timeline), len(two.Timeline))
			}
			other := Run(Case{Profile: p.Name, Seed: 8, Ops: 200}, true)
			if slices.Equal(one.Timeline, other.Timeline) {
				t.Error("another seed gives the same run")
			}
			if quiet := Run(c, false); quiet.Events != one.Events || quiet.Ops != one.Ops {
				t.Errorf("a run without a timeline has %d events, with one %d", quiet.Events, one.Events)
			}
		})
	}
}

// late are the mutants that show late, or in a run that is short already, each
// with a seed shortly before. `make proof` tries all seeds from 1.
var late = map[string]uint64{
	"write-then-mark": 318, "earliest-is-told": 144, "blind-drop": 162, "early-grant": 30, "equal-from-any": 18,
	"clock-before-lock": 17, "lost-is-done": 13, "any-key": 17, "renews-the-dead": 8,
}

// Every broken variant must break one of its laws within a limited number of
// seeds.
func TestMutantsAreFound(t *testing.T) {
	const seeds = 300
	for _, m := range Mutants {
		if !m.Built() {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			r, tried := m.Kill(max(1, late[m.Name]), seeds)
			switch {
			case r == nil:
				t.Errorf("%s (%s) is not noticed in %d seeds of %s", m.Name, m.Says, tried, m.Profile)
			case !slices.Contains(m.Laws, r.Broken.Law):
				t.Errorf("%s (%s) is found by another law than it should, at seed %d: %v", m.Name, m.Says, r.Case.Seed, r.Broken)
			}
		})
	}
}

// The old text of every patch occurs once, and a law or a test finds the
// mutant.
func TestEveryPatchFits(t *testing.T) {
	names, patches := map[string]bool{}, 0
	for _, m := range Mutants {
		if names[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		names[m.Name] = true
		if m.Built() {
			continue
		}
		patches++
		if err := m.Patch.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if (m.Test == "") != (len(m.Laws) > 0 && m.Profile != "") {
			t.Errorf("%s has laws %v and test %q, and needs one of both", m.Name, m.Laws, m.Test)
		}
	}
	if patches < 20 {
		t.Errorf("%d mutants are patches", patches)
	}
}

// Each law must find at least one mutant.
func TestEveryLawIsNeeded(t *testing.T) {
	for _, law := range []Law{OneGrant, TokensRise, WritesInOrder, NoEarlyGrant, LocalDeadline, OneTruth, FreshRefusal, WrongGrant, Causes, Liveness, LostUpdate, FairRefusal} {
		if !slices.ContainsFunc(Mutants, func(m *Mutant) bool { return len(m.Laws) > 0 && m.Laws[0] == law }) {
			t.Errorf("no mutant is found by law %s", law)
		}
	}
}

// The shrunk case breaks the same law with fewer faults. Its timeline ends with
// the verdict.
func TestABrokenSeedIsShrunk(t *testing.T) {
	for _, name := range []string{"raise-forgotten", "clock-before-lock", "lost-is-done"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := FindMutant(name)
			if err != nil {
				t.Fatal(err)
			}
			found, _ := m.Kill(max(1, late[m.Name]), 300)
			for found != nil && len(found.Fired) < 6 { // too few to take some away
				found, _ = m.Kill(found.Case.Seed+1, 300)
			}
			if found == nil {
				t.Fatal("not found")
			}
			small := Shrink(found.Case, 60)
			if small.Broken == nil || small.Broken.Law != found.Broken.Law {
				t.Fatalf("shrunk to %v, from %v", small.Broken, found.Broken)
			}
			if len(small.Fired) >= len(found.Fired) {
				t.Errorf("shrunk from %d faults to %d", len(found.Fired), len(small.Fired))
			}
			last := small.Timeline[len(small.Timeline)-1]
			if !strings.Contains(last, "judge") {
				t.Errorf("the timeline ends with %q", last)
			}
			if again := Run(small.Case, true); !slices.Equal(again.Timeline, small.Timeline) {
				t.Error("the shrunk case gives another run when it is run again")
			}
		})
	}
}

// Without faults every client gets its keys, and no law is broken.
func TestNoLawBreaksWithoutFaults(t *testing.T) {
	var every []Fault
	for f := range faults {
		every = append(every, f)
	}
	for _, p := range Profiles {
		r := Run(Case{Profile: p.Name, Seed: 1, Never: every, Ops: 200}, false)
		if r.Broken != nil || len(r.Fired) > 0 {
			t.Errorf("%s: %d faults, %v", p.Name, len(r.Fired), r.Broken)
		}
		if r.Coverage[Sight{"transition", "release"}] == 0 || r.Coverage[Sight{"fence", "written"}] == 0 {
			t.Errorf("%s: nothing was done", p.Name)
		}
	}
}
