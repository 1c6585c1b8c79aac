package suite

import (
	"slices"
	"strings"
	"testing"
)

// Flaw is one way to break something. The suite must notice it in the checks of
// one group.
type Flaw[T any] struct {
	// Name says what the broken variant does wrong: "forgets its holder".
	Name string
	// Group is the behaviour that is broken.
	Group string
	// Begin begins a trial of the broken variant.
	Begin func(tb testing.TB) T
}

// Caught fails t for every flaw that passes all checks of its group. It also
// fails t for every group without a flaw, because checks that nothing can fail
// prove nothing. Groups in spared need no flaw: they only repeat other checks
// at random.
func Caught[T any](t *testing.T, groups []Group[T], flaws []Flaw[T], spared ...string) {
	t.Helper()
	seen, tried := map[string]bool{}, map[string]bool{}
	for _, f := range flaws {
		if seen[f.Name] {
			t.Errorf("two flaws are called %q", f.Name)
		}
		seen[f.Name], tried[f.Group] = true, true
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			for _, c := range Only(t, slices.Clone(groups), f.Group)[0].Checks {
				said := Record(t, func(tb testing.TB) { c.Run(f.Begin(tb)) })
				if len(said) == 0 {
					continue
				}
				if n := slices.IndexFunc(said, func(s string) bool { return strings.HasPrefix(s, "panic: ") }); n >= 0 {
					t.Errorf("the suite ended in %q: %s", c.Name, said[n])
				}
				t.Logf("caught by %q: %s", c.Name, said[0])
				return
			}
			t.Errorf("a variant that %s passes all of %q", f.Name, f.Group)
		})
	}
	for _, g := range groups {
		if !tried[g.Name] && !slices.Contains(spared, g.Name) {
			t.Errorf("no broken variant is there for %q", g.Name)
		}
	}
}
