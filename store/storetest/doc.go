// Package storetest is the conformance suite of lease stores.
//
// The author of a store calls [Run] from a test. A store that passes keeps the
// laws that the rest of Croft is built on.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) storetest.Harness {
//			dir := tb.TempDir()
//			open := func(tb testing.TB, o storetest.Options) store.Store { … }
//			wipe := func(tb testing.TB) { … }
//			return storetest.Harness{Open: open, Wipe: wipe, Slow: true}
//		})
//	}
//
// Open gives each handle the retention of its Options. The handles of one place
// share records and clock, as clients in different processes do. If the store
// accepts a clock, make a [Clock] for each place: its Now is the store's clock,
// and its Advance is [Harness.Advance]. backend/mem shows a hook-up of that
// kind.
//
// `go test -short` runs every check with fewer repetitions. A check's name is
// its group and its promise. To run one group alone:
//
//	go test -run 'TestConformance/retention' ./backend/NAME
//
// The suite does not look everywhere. It crashes no process and cuts no power.
// It breaks no connections: see [CutAfterRequest], [CutBeforeRequest] and
// [NotThere] for stores with a server. It lets a client stand still only where
// the store looks at its context, as store/cas does between load and swap.
//
// The law itself, [tenure.Apply], is the oracle of the suite. The suite reads
// the record before a request and after it. The store's answer must be the
// law's answer for that record, at the time that the store's answer gives. So
// the suite has no second copy of the law. It never asserts on speed: a store
// that is slower than a TTL has seen other times, not other rules.
//
// If the harness can set the store's clock ([Harness.Advance]), the suite tests
// at the exact edges of deadlines. Otherwise it uses short deadlines and waits
// for the store's own clock.
//
// The wrappers [DropReply], [DropRequest], [DeliverLate] and [DeliverTwice] put
// a bad network in front of any store. They serve the suite and tests of
// clients. [Failures] returns the checks that a store fails, so that a test can
// show that the suite catches a store broken on purpose.
//
// # Goroutines
//
// Each check has an empty store of its own, and checks run in parallel. Checks
// of contention start many goroutines on a few handles, and wait for all of
// them before they judge. [Late] and [Clock] have a mutex each. A check whose
// store gives no answer for a long time is ended by its context.
package storetest
