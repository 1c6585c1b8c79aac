package worktest

import (
	"context"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/suite"
	"github.com/croft-dev/croft/work"
)

// Harness is one empty place for items, and what a check may do with it.
type Harness struct {
	// Open opens a handle on the place. Every call is another client of the same items. The suite closes what it opens. Required.
	Open func(tb testing.TB) work.Ledger
	// Within carries out do in a transaction of the caller's own, begun beside the handle l, and commits it if do returns nil, else rolls it back and returns do's error. Nil for a ledger without transactions.
	Within func(ctx context.Context, l work.Ledger, do func(work.Operations) error) error
	// Damage spoils what the ledger behind the handle l keeps of an item, as somebody might by hand: it is in the given state then, and its record cannot be one of the law's. Nil for a ledger that keeps its items where nobody reaches them.
	Damage func(tb testing.TB, l work.Ledger, id work.ID, state work.State)
	// Advance moves the ledger's clock, where it is the harness's to move. Without it the suite uses short times and waits for the ledger's own clock.
	Advance func(d time.Duration)
	// Slow says that a request costs a round trip or a sync to disk: the suite does less of the same.
	Slow bool
	// Patience is how long something may take that must happen soon; default 30 s. It is a bound on hanging, not on speed.
	Patience time.Duration
}

// check is one promise of a ledger and how it is tried; group is a behaviour: the checks of one file.
type (
	check = suite.Check[*trial]
	group = suite.Group[*trial]
)

// groups lists every check there is.
func groups() []group {
	return []group{
		{"adding", adding()},
		{"claiming", claiming()},
		{"owning", owning()},
		{"stale", stale()},
		{"completing", completing()},
		{"failing", failing()},
		{"by hand", byHand()},
		{"requeueing", requeueing()},
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

// Run tries every promise of a ledger, each in a subtest of its own and on a place of its own, side by side. place makes an empty place, apart from all others; it is called once for every check.
func Run(t *testing.T, place func(tb testing.TB) Harness) { suite.Run(t, groups(), begun(place)) }

// RunTimed tries the promises in which time or the caller's transaction has a part, and no others: for a second run of a slow ledger on its own clock, or with another kind of transaction, after one of the whole suite.
func RunTimed(t *testing.T, place func(tb testing.TB) Harness) {
	timed := []string{"claiming", "owning", "failing", "requeueing", "outbox", "pruning", "transactions", "races"}
	suite.Run(t, suite.Only(t, groups(), timed...), begun(place))
}

// Failures runs the checks of the named groups, or all checks if none is named, without failing t, and returns what the failed ones had to say, by "group/check". It is for tests of the suite: a ledger that is broken on purpose must fail.
func Failures(t testing.TB, place func(tb testing.TB) Harness, names ...string) map[string][]string {
	t.Helper()
	some := groups()
	if len(names) > 0 {
		some = suite.Only(t, some, names...)
	}
	return suite.Failures(t, some, begun(place))
}

// begun begins a trial on a place of its own.
func begun(place func(tb testing.TB) Harness) func(testing.TB) *trial {
	return func(tb testing.TB) *trial { return newTrial(tb, place(tb)) }
}
