// Package steward keeps a ledger in order. It has two jobs. Each runs under a
// lease of its own, so that of all replicas only one works at a time.
//
// The reconciler is [RunReconciler], or one pass with [Reconcile]. It requeues
// items whose owner is no longer heard of, and buries those whose attempts are
// used up. It makes effects pending again whose dispatcher has died, flags
// items without progress, and prunes old items. Each of its writes is a compare
// and swap on the token that it has read.
//
// The dispatcher is [RunDispatcher]. It delivers effects to their destinations:
// a Go function, a webhook or a command. It presents its stamp with every
// effect that it takes or settles, and the ledger checks it. So a dispatcher
// that was presumed dead and replaced settles nothing.
//
// # How a dispatcher runs
//
// A dispatcher runs one session per term of its lease. One goroutine has the
// state of the session: it takes effects, waits for results and settles them. A
// further goroutine makes each delivery and sends its result back over a
// channel. Another listens to the ledger's hints. There is no lock.
//
//   - At most Slots deliveries are in flight.
//   - An effect that was taken is unknown in the ledger until it is settled. If
//     it is not settled in time it is an orphan, which the reconciler brings
//     back.
//   - Deliveries end with the lease. Their results are settled all the same:
//     the ledger decides by the stamp whether they count.
//   - When its context ends, the session takes nothing more, waits for the
//     deliveries in flight, and tries three times more to settle the rest.
//
// The reconciler has one goroutine and no state between passes.
package steward
