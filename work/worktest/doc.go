// Package worktest is the conformance suite of ledgers: whoever writes one calls [Run] from a test, and what passes keeps the laws that workers, dispatchers and operators rely on.
//
//	func TestLedger(t *testing.T) {
//		worktest.Run(t, func(tb testing.TB) worktest.Harness {
//			l := …  // an empty place
//			return worktest.Harness{
//				Open:   func(tb testing.TB) work.Ledger { … },
//				Within: func(ctx context.Context, l work.Ledger, do func(work.Operations) error) error { … },
//				Slow:   true,
//			}
//		})
//	}
//
// The oracle is the law itself: the suite reads the item before a request and after it, and the ledger must have answered, and must keep, what [work.Apply] says of that item at the time the ledger has answered, effects and refusals included.
// So the suite holds no second copy of the law, and it never asserts on speed.
//
// [Failures] tells which checks a ledger fails, so that one broken on purpose can be shown to be caught.
package worktest
