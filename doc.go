// Package croft provides leases and fencing for background jobs. A lease
// decides who may try to do the work. Fencing decides whose writes still count.
//
// # Leases
//
// A [Client] talks to one lease store. [Client.Acquire] takes the lease on a
// key and returns a [Lease]. The client renews it in the background until it is
// released or lost.
//
// [Lease.Context] ends when the lease ends, at the latest at its local
// deadline. That is at least a tenth of the TTL before the store would give the
// key to another, and only a confirmed renewal moves it. So the context ends in
// time even if the store cannot be reached. If the machine was suspended, the
// context ends within a second of waking.
//
// [Client.Do] acquires, runs a function and releases in one call.
// [Client.Every], [Client.HoldFor] and [Client.Loop] are variants of it: once
// per period, keeping the key after success, and again and again. [Client.Lead]
// elects a leader. [Client.AcquireAll] takes several keys or none.
//
// # Fencing
//
// A lease alone cannot stop a worker that was presumed dead and wakes up with a
// half-finished result. A guarded resource can (package guard). It checks the
// stamp ([Lease.Stamp]) with every write, and refuses the write once it has
// admitted a newer owner. Name such resources in [LeaseOptions].Guards.
//
// # Three answers
//
// A question to a store has three possible answers. It is so; it is not so
// ([ErrHeld], [ErrNotOwned]); or it is not known ([ErrUnknown]). An unknown
// answer gives no authority: do not act as if you held the lease.
package croft
