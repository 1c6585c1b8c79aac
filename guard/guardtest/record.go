package guardtest

import (
	"slices"
	"testing"

	"github.com/croft-dev/croft/internal/test/suite"
)

// Failures runs the named checks without failing t, or all checks if none is
// named. It returns the messages of the failed ones, by the check's name. It is
// for tests of the suite: a guard that is broken on purpose must fail.
func Failures(t testing.TB, h Harness, names ...string) map[string][]string {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
			t.Fatalf("guardtest: there is no check %q", name)
		}
	}
	failures := map[string][]string{}
	for _, c := range checks {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		if said := suite.Record(t, func(tb testing.TB) { c.run(tb, h) }); len(said) > 0 {
			failures[c.name] = said
		}
	}
	return failures
}
