package guardtest

import (
	"testing"

	"github.com/croft-dev/croft/internal/suite"
)

// Failures runs every check without failing t and returns what the failed ones had to say, by the check's name. It is for tests of the
// suite: a guard that is broken on purpose must fail.
func Failures(t testing.TB, h Harness) map[string][]string {
	t.Helper()
	failures := map[string][]string{}
	for _, c := range checks {
		if said := suite.Record(t, func(tb testing.TB) { c.run(tb, h) }); len(said) > 0 {
			failures[c.name] = said
		}
	}
	return failures
}
