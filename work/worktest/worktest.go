package worktest

import (
	"context"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/work"
)

// Harness is one empty ledger, and what a check may do with it.
type Harness struct {
	// Open opens a handle on the ledger. Every call is another client of the
	// same items. The suite closes the handles. Required.
	Open func(tb testing.TB) work.Ledger
	// Within calls do in a transaction of the caller's own, beside the handle
	// l. It commits if do returns nil. Otherwise it rolls back and returns do's
	// error. Nil for a ledger without transactions.
	Within func(ctx context.Context, l work.Ledger, do func(work.Operations) error) error
	// Damage spoils an item in the ledger behind the handle l, as somebody
	// might by hand. It puts the item into the given state, with a record that
	// the law could not have made. Nil for a ledger whose storage nobody can
	// reach.
	Damage func(tb testing.TB, l work.Ledger, id work.ID, state work.State)
	// Advance moves the ledger's clock, if the harness can. Without it the
	// suite uses short times and waits for the ledger's own clock.
	Advance func(d time.Duration)
	// Slow says that a request costs a round trip or a sync to disk. The suite
	// then repeats less.
	Slow bool
	// Patience is how long the suite waits for things that must happen. It
	// bounds hanging and does not measure speed. Default: 30 seconds.
	Patience time.Duration
}

// check is one promise of a ledger, and how to try it. group is a behaviour:
// the checks of one file.
type (
	check = suite.Check[*trial]
	group = suite.Group[*trial]
)

// groups lists all checks.
func groups() []group {
	return []group{
		{"adding", adding()},
		{"claiming", claiming()},
		{"rules", rules()},
		{"limits", limits()},
		{"partitions", partitions()},
		{"owning", owning()},
		{"stale", stale()},
		{"completing", completing()},
		{"failing", failing()},
		{"by hand", byHand()},
		{"requeueing", requeueing()},
		{"guards", guards()},
		{"outbox", outbox()},
		{"refusals", refusals()},
		{"reading", reading()},
		{"pruning", pruning()},
		{"batches", batches()},
		{"transactions", transactions()},
		{"damaged", damaged()},
		{"races", races()},
		{"waking", waking()},
		{"handles", handles()},
		{"sequences", sequences()},
	}
}

// Run tries every promise of a ledger, each in a parallel subtest. It calls
// place once for every check; place must make an empty ledger, apart from all
// others.
func Run(t *testing.T, place func(tb testing.TB) Harness) { suite.Run(t, groups(), begun(place)) }

// RunTimed tries only the promises that depend on time or on the caller's
// transactions. Use it after Run, for a second run of a slow ledger on its own
// clock or with another kind of transaction.
func RunTimed(t *testing.T, place func(tb testing.TB) Harness) {
	timed := []string{
		"claiming", "limits", "partitions", "owning", "failing", "requeueing", "outbox", "pruning", "transactions",
		"races",
	}
	suite.Run(t, suite.Only(t, groups(), timed...), begun(place))
}

// Failures runs the checks of the named groups, or all checks if none is named.
// It does not fail t. It returns the messages of the failed checks, by
// "group/check". It is for tests of the suite: a ledger that is broken on
// purpose must fail.
func Failures(t testing.TB, place func(tb testing.TB) Harness, names ...string) map[string][]string {
	t.Helper()
	some := groups()
	if len(names) > 0 {
		some = suite.Only(t, some, names...)
	}
	return suite.Failures(t, some, begun(place))
}

// begun returns a function that begins a trial on a new ledger.
func begun(place func(tb testing.TB) Harness) func(testing.TB) *trial {
	return func(tb testing.TB) *trial { return newTrial(tb, place(tb)) }
}
