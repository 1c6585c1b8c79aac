// Package suite carries the conformance suites: what storetest, worktest and guardtest have in common, whatever it is that they try. It lists checks in groups, runs
// them side by side, records what a check has to say without failing the test that asks, and holds every suite to catching what is broken on purpose.
package suite

import (
	"slices"
	"testing"
)

// Check is one promise and how it is tried in a trial of the suite's own. It is a plain struct, so that suites list theirs without naming fields.
type Check[T any] = struct {
	Name string
	Run  func(t T)
}

// Group is a behaviour: the checks of one file.
type Group[T any] = struct {
	Name   string
	Checks []Check[T]
}

// Run tries every check, each in a subtest of its own and in a trial of its own, side by side. begin is called once for every check.
func Run[T any](t *testing.T, groups []Group[T], begin func(tb testing.TB) T) {
	for _, g := range groups {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.Checks {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					c.Run(begin(t))
				})
			}
		})
	}
}

// Only returns the named groups, in their own order. It fails t if there is no group of a name.
func Only[T any](t testing.TB, groups []Group[T], names ...string) []Group[T] {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(groups, func(g Group[T]) bool { return g.Name == name }) {
			t.Fatalf("there is no group %q", name)
		}
	}
	return slices.DeleteFunc(groups, func(g Group[T]) bool { return !slices.Contains(names, g.Name) })
}

// Failures runs the checks one after another without failing t and returns what the failed ones had to say, by "group/check".
func Failures[T any](t testing.TB, groups []Group[T], begin func(tb testing.TB) T) map[string][]string {
	t.Helper()
	failures := map[string][]string{}
	for _, g := range groups {
		for _, c := range g.Checks {
			if said := Record(t, func(tb testing.TB) { c.Run(begin(tb)) }); len(said) > 0 {
				failures[g.Name+"/"+c.Name] = said
			}
		}
	}
	return failures
}
