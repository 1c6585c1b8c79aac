package storetest

import (
	"strings"
	"testing"
)

// TestASoundStorePasses: what is caught below is caught for its flaw, and not because the store it is in fails anyway.
func TestASoundStorePasses(t *testing.T) {
	Run(t, func(tb testing.TB) Harness {
		h := sound().place(tb)
		h.Patience = 0 // nothing is expected to take long
		return h
	})
}

// TestBrokenStoresAreCaught: every flaw is noticed, and in the behaviour it is a flaw of.
func TestBrokenStoresAreCaught(t *testing.T) {
	groups := map[string]group{}
	for _, g := range suite() {
		groups[g.name] = g
	}
	seen := map[string]bool{}
	for _, f := range flaws() {
		if seen[f.name] {
			t.Errorf("two flaws are called %q", f.name)
		}
		seen[f.name] = true
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			g, ok := groups[f.group]
			if !ok {
				t.Fatalf("there is no group %q", f.group)
			}
			for _, c := range g.checks {
				failures := record(t, c, func(tb testing.TB) Harness {
					p := sound()
					f.spoil(p)
					return p.place(tb)
				})
				if len(failures) > 0 {
					if strings.HasPrefix(failures[len(failures)-1], "panic: ") {
						t.Errorf("the suite ended in %q: %s", c.name, failures[len(failures)-1])
					}
					t.Logf("caught by %q: %s", c.name, failures[0])
					return
				}
			}
			t.Errorf("a store that %s passes all of %q", f.name, f.group)
		})
	}
}

// TestEveryGroupCatchesSomething: a behaviour whose checks no flaw can fail would be decoration.
func TestEveryGroupCatchesSomething(t *testing.T) {
	caught := map[string]int{}
	for _, f := range flaws() {
		caught[f.group]++
	}
	for _, g := range suite() {
		if caught[g.name] == 0 && g.name != "sequences" { // which repeats what the others try, at random
			t.Errorf("no broken store is there for %q", g.name)
		}
	}
}

// TestFailuresNamesWhatFails, and only that, as suites of other packages ask for it.
func TestFailuresNamesWhatFails(t *testing.T) {
	f := flaws()[0]
	broken := func(tb testing.TB) Harness {
		p := sound()
		f.spoil(p)
		return p.place(tb)
	}
	failures := Failures(t, broken, f.group)
	for name, said := range failures {
		if !strings.HasPrefix(name, f.group+"/") || len(said) == 0 {
			t.Errorf("%q said %q", name, said)
		}
	}
	if len(failures) == 0 {
		t.Errorf("a store that %s fails nothing in %q", f.name, f.group)
	}
	if failures := Failures(t, func(tb testing.TB) Harness { return sound().place(tb) }, "keys", "facts"); len(failures) > 0 {
		t.Errorf("a sound store: %v", failures)
	}
}
