package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/suite"
	"github.com/croft-dev/croft/store"
)

// Harness is one empty place for leases, and what a check may do with it.
type Harness struct {
	// Open opens a handle on the place. Every call is another client of the same leases. The suite closes what it opens. Required.
	Open func(tb testing.TB, o Options) store.Store
	// Wipe makes the place lose its memory while handles are open: a flushed database, a deleted directory, an emptied bucket. Required.
	Wipe func(tb testing.TB)
	// Advance moves the store's clock, where it is the harness's to move. Without it the suite waits for the store's own clock.
	Advance func(d time.Duration)
	// Grain is how coarse the store's own clock is: readings of it may differ by as much. Zero means that they never do.
	Grain time.Duration
	// Slow says that a request costs a round trip or a sync to disk: the suite does less of the same.
	Slow bool
	// Crowd is how many keys there are at most where the suite wants many, for a store to which each is a request of its own. Zero means as many as it wants. Let such a store list them in small pages.
	Crowd int
	// Patience is how long something may take that must happen soon; default 30 s. It is a bound on hanging, not on speed.
	Patience time.Duration
}

// Options are what a check wants of a handle.
type Options struct {
	// Retention is the handle's; zero means the store's own default. All handles of one place get the same.
	Retention time.Duration
}

// check is one promise of a store and how it is tried; group is a behaviour: the checks of one file.
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

// Run tries every promise of a store, each in a subtest of its own and on a place of its own, side by side. place makes an empty place,
// apart from all others; it is called once for every check.
//
// With -short, and on stores that are Slow, the suite repeats less and leaves nothing out.
func Run(t *testing.T, place func(tb testing.TB) Harness) {
	suite.Run(t, groups(), begun(place))
}

// RunTimed tries the promises in which time has a part, and no others: for a second run of a slow store on its own clock, after one of the whole suite on a clock that the harness moves.
func RunTimed(t *testing.T, place func(tb testing.TB) Harness) {
	suite.Run(t, timed(t), begun(place))
}

// timed lists the checks that read the clock or wait for it, and those of
// batches, which may read it once for many requests. Of transitions it takes the
// states that are reached by waiting. Of contention it takes the race for an
// expired lease, and one race in which every verb meets every other.
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

// Failures runs the checks of the named groups, or all checks if none is named, without failing t, and returns what the failed ones had to say, by "group/check". It is for tests of the suite: a store that is broken on purpose must fail.
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
