// Package steward keeps a ledger in order. It has two jobs, each under leases
// of its own.
//
// The reconciler is [RunReconciler], or one pass with [Reconcile]. Of all
// replicas one works at a time. It requeues items whose owner is no longer
// heard of, and buries those whose attempts are used up. It makes effects
// pending again whose dispatcher has died, flags items without progress, and
// prunes old items. Each of its writes is a compare and swap on the token that
// it has read.
//
// The dispatcher is [RunDispatcher]. It delivers effects to their destinations:
// a Go function, a webhook or a command. It presents its stamp with every
// effect that it takes or settles, and the ledger checks it. So a dispatcher
// that was presumed dead and replaced settles nothing.
//
// # How a dispatcher runs
//
// Several dispatchers share the work. Each holds a lease on a key of its own,
// and runs one session per term of that lease. A session has a lane for each
// destination. One goroutine has the state of a lane: it decides what to take,
// send and settle. A lane has at most one taking and one settlement in flight,
// each on a goroutine of its own, and a goroutine for each delivery. They send
// what happened back over a channel. One more goroutine for each session
// listens to the ledger's hints. The only lock is held while an observer is
// called.
//
//   - At most Slots deliveries of a lane are in flight. A lane that waits, or
//     whose receiver fails, holds up no other.
//   - A lane takes ahead of its deliveries: twice as many as were delivered
//     since the last taking. So the ledger is asked in large batches by a fast
//     receiver, and little waits for a slow one.
//   - An effect that was taken is unknown in the ledger until it is settled. If
//     it is not settled in time it is an orphan, which the reconciler brings
//     back.
//   - A breaker pauses a lane whose deliveries fail, and gives back the
//     effects that the lane has taken and not sent.
//   - Deliveries end with the lease. Their results are settled all the same:
//     the ledger decides by the stamp whether they count.
//   - When its context ends, a lane takes nothing more, gives back the
//     effects that it has not sent, waits for the deliveries in flight, and
//     tries three times more to settle the rest.
//
// The reconciler has one goroutine and no state between passes.
package steward
