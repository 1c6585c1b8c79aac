// Package storetest is the conformance suite of lease stores: whoever writes a store calls [Run] from a test, and what passes keeps
// the laws that the rest of Croft is built on.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) storetest.Harness {
//			dir := tb.TempDir()
//			return storetest.Harness{
//				Open: func(tb testing.TB, o storetest.Options) store.Store { … },
//				Wipe: func(tb testing.TB) { … },
//				Slow: true,
//			}
//		})
//	}
//
// The oracle of the suite is the law itself, [tenure.Apply]: a store is asked for the record before a request and after it, and
// must have answered what the law says of that record at the time the store has answered. So the suite holds no second copy of the law, and it never asserts
// on speed: a store that is slower than a TTL has seen other times, not other rules.
//
// A store whose clock can be set ([Harness.Advance]) is tested at the very edges of deadlines; any other is tested with short ones and waits for its own clock.
//
// The wrappers [DropReply], [DropRequest], [DeliverLate] and [DeliverTwice] put a bad network in front of any store, for the suite and for tests of
// clients. [Failures] tells which checks a store fails, so that a store broken on purpose can be shown to be caught.
package storetest
