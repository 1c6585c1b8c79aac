package storetest

import (
	"slices"
	"testing"
	"time"

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

// check is one promise of a store and how it is tried.
type check struct {
	name string
	run  func(t *trial)
}

// group is a behaviour: the checks of one file.
type group struct {
	name   string
	checks []check
}

// suite lists every check there is.
func suite() []group {
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
		{"contexts", contexts()},
		{"handles", handles()},
	}
}

// Run tries every promise of a store, each in a subtest of its own and on a place of its own, side by side. place makes an empty place,
// apart from all others; it is called once for every check.
//
// With -short, and on stores that are Slow, the suite repeats less and leaves nothing out.
func Run(t *testing.T, place func(tb testing.TB) Harness) {
	run(t, place, suite())
}

// RunTimed tries the promises in which time has a part, and no others: for a second run of a slow store on its own clock, after one of the whole suite on a clock that the harness moves.
func RunTimed(t *testing.T, place func(tb testing.TB) Harness) {
	timed := []string{"transitions", "contention", "tokens", "deadlines", "periods", "reservations", "history", "retention"}
	run(t, place, slices.DeleteFunc(suite(), func(g group) bool { return !slices.Contains(timed, g.name) }))
}

func run(t *testing.T, place func(tb testing.TB) Harness, groups []group) {
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.checks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(newTrial(t, place(t)))
				})
			}
		})
	}
}
