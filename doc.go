// Package croft holds leases and loses them in time: use leases to decide who may try, and fencing to decide whose writes still count.
//
// A [Client] talks to one lease store. [Client.Acquire] takes the lease on a key and returns a [Lease], whose context ends when the lease does, at
// the latest a tenth of its TTL before the store would give the key to another. While it lives, the client renews it. [Client.Do] is acquire, work and release in
// one call; [Client.Every], [Client.HoldFor] and [Client.Loop] are the other patterns.
//
// A lease says who may try. It cannot stop a worker that was presumed dead and wakes up with a half-finished result: that takes a
// guarded resource (package guard) that checks the stamp, [Lease.Stamp], with every write.
//
// Every question put to a store has three answers, never two: it is so, it is not so ([ErrHeld], [ErrNotOwned]), or it is not known
// ([ErrUnknown]). What is not known gives no authority.
package croft
