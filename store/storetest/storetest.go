package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
)

// Harness is one empty set of leases, and the means to test it. The suite calls
// such a set a place: a database, a directory, a bucket.
type Harness struct {
	// Open opens a handle on the place. Every handle is another client of the
	// same leases. The suite closes the handles. Required.
	Open func(tb testing.TB, o Options) store.Store
	// Wipe makes the place lose all records while handles are open. Examples
	// are a flushed database, a deleted directory, an emptied bucket. Required.
	Wipe func(tb testing.TB)
	// Advance moves the store's clock, if the harness can. If it is nil, the
	// suite waits for the store's own clock.
	Advance func(d time.Duration)
	// Grain is how coarse the store's clock is: two readings of the same moment
	// may differ by as much. Zero means that they never differ.
	Grain time.Duration
	// Slow says that a request costs a round trip or a sync to disk. The suite
	// then repeats less.
	Slow bool
	// MaxKeys is the highest number of keys that the suite uses where it wants
	// many. It is for a store that needs a request for each key. Zero means no
	// limit. Let such a store list keys in small pages.
	MaxKeys int
	// Patience is the longest time for something that must happen soon. The
	// default is 30 s. It catches a store that hangs, not a slow one.
	Patience time.Duration
}

// Options are what a check needs of a handle.
type Options struct {
	// Retention is the handle's retention. Zero means the store's own default.
	// All handles of one place get the same.
	Retention time.Duration
}

// check is one promise of a store. group is one behaviour: the checks of one
// file.
type (
	check = suite.Check[*trial]
	group = suite.Group[*trial]
)

// groups lists every check there is.
func groups() []group {
	return []group{
		{"transitions", transitions()},
		{"sequences", sequences()},
		{"repeats", repeats()},
		{"ambiguity", ambiguity()},
		{"contention", contention()},
		{"tokens", tokens()},
		{"deadlines", deadlines()},
		{"periods", periods()},
		{"reservations", reservations()},
		{"history", history()},
		{"checkpoints", checkpoints()},
		{"facts", facts()},
		{"batch", batch()},
		{"listing", listing()},
		{"keys", keys()},
		{"retention", retention()},
		{"watch", watch()},
		{"acts", announcements()},
		{"contexts", contexts()},
		{"handles", handles()},
	}
}

// Run tries every promise of a store. Each check is a subtest with a place of
// its own, and all run in parallel. Run calls place once for every check. place
// makes an empty place that shares nothing with others.
//
// With -short, and on stores that are Slow, the suite repeats less, but leaves
// nothing out.
func Run(t *testing.T, place func(tb testing.TB) Harness) {
	suite.Run(t, groups(), begun(place))
}

// RunTimed tries only the promises in which time has a part. It is for a second
// run of a slow store, on its own clock, after a run of the whole suite on a
// clock that the harness moves.
func RunTimed(t *testing.T, place func(tb testing.TB) Harness) {
	suite.Run(t, timed(t), begun(place))
}

// timed lists the checks that read the clock or wait for it. Batches are among
// them, because a store may read the clock once for many requests. It takes
// only those transitions whose states are reached by waiting. From contention
// it takes the race for an expired lease, and one race in which every verb
// meets every other.
func timed(t testing.TB) []group {
	names := []string{"contention", "batch", "tokens", "deadlines", "periods", "reservations", "history", "retention"}
	some := suite.Only(t, groups(), names...)
	for i, g := range some {
		if g.Name == "contention" {
			some[i].Checks = only(t, g.Checks, checkReclaim, checkEverybody)
		}
	}
	waiting := group{Name: "transitions"}
	for i, st := range states() {
		if st.waits() {
			waiting.Checks = append(waiting.Checks, check{st.name, func(t *trial) { t.everyAct(i, st) }})
		}
	}
	return append(some, waiting)
}

// only returns the named checks.
func only(t testing.TB, checks []check, names ...string) []check {
	t.Helper()
	some := slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return !slices.Contains(names, c.Name) })
	if len(some) != len(names) {
		t.Fatalf("of the checks %q there are %d", names, len(some))
	}
	return some
}

// Failures runs the checks of the named groups without failing t, or all checks
// if none is named. It returns the messages of the failed ones, by
// "group/check". It is for tests of the suite: a store that is broken on
// purpose must fail.
func Failures(t testing.TB, place func(tb testing.TB) Harness, names ...string) map[string][]string {
	t.Helper()
	some := groups()
	if len(names) > 0 {
		some = suite.Only(t, some, names...)
	}
	return suite.Failures(t, some, begun(place))
}

// begun makes a function that begins a trial on a place of its own.
func begun(place func(tb testing.TB) Harness) func(testing.TB) *trial {
	return func(tb testing.TB) *trial { return newTrial(tb, place(tb)) }
}
