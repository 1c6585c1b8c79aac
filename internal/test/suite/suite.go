// Package suite has the common parts of the conformance suites storetest,
// worktest and guardtest.
//
// It lists checks in groups and runs them in parallel. It records what a check
// reports without failing the test that called it. And it makes sure that every
// suite catches variants that are broken on purpose.
//
// [Record] runs its check in a goroutine of its own and waits for it, because a
// failed check ends its goroutine. A mutex guards the recorded messages, since
// a check may report from several goroutines.
package suite

import (
	"slices"
	"testing"
)

// Check is one promise, and the function that tries it. T is the suite's own
// type of trial. Check is a plain struct, so that suites can list checks
// without field names.
type Check[T any] = struct {
	Name string
	Run  func(t T)
}

// Group is one behaviour. Its checks are in one file.
type Group[T any] = struct {
	Name   string
	Checks []Check[T]
}

// Run runs every check in a subtest and in a trial of its own, in parallel. It
// calls begin once for every check.
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

// Only returns the named groups, in their own order. It fails t if there is no
// group of that name.
func Only[T any](t testing.TB, groups []Group[T], names ...string) []Group[T] {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(groups, func(g Group[T]) bool { return g.Name == name }) {
			t.Fatalf("there is no group %q", name)
		}
	}
	return slices.DeleteFunc(groups, func(g Group[T]) bool { return !slices.Contains(names, g.Name) })
}

// Failures runs the checks one after another without failing t. It returns the
// messages of the failed ones, by "group/check".
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
