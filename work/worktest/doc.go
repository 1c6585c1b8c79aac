// Package worktest is the conformance suite of ledgers. The author of a ledger
// calls [Run] from a test. A ledger that passes keeps the promises on which
// workers, dispatchers and operators rely.
//
//	func TestLedger(t *testing.T) {
//		worktest.Run(t, func(tb testing.TB) worktest.Harness {
//			db := … // an empty database
//			return worktest.Harness{
//				Open:   func(tb testing.TB) work.Ledger { … },
//				Within: inTransaction,
//				Slow:   true,
//			}
//		})
//	}
//
// The suite holds no second copy of the law. It reads the item before and after
// a request. The ledger's answer, and the item, effects and refusals that it
// keeps, must be those of [work.Apply] at the time of the answer. The suite
// never asserts on speed.
//
// [Failures] lists the checks that a ledger fails. So a test can show that the
// suite catches a ledger that is broken on purpose.
package worktest
