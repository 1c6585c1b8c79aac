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
//
// # Goroutines and locks
//
// One state machine without I/O makes all decisions of a client
// (internal/engine). The client's mutex protects it, and everything that
// callers and goroutines share. A goroutine that has news locks the client,
// tells the engine, takes the work that the engine wants done, and unlocks.
// Then it does the work. So no lock is held during a call of the store, of a
// guard or of an observer.
//
//   - A caller waits on its own goroutine. If the store answers quickly and
//     nothing else is in flight, the caller also makes the store's call.
//   - Other goroutines exist only as long as they are needed: one for a batch
//     in flight, one for each watch, and some that read the records of stalled
//     leases.
//   - A timer tells the engine when time has passed: see internal/clock.
//   - A call that acts on several keys or guards has a goroutine for each, and
//     waits for all of them.
//   - Close waits until no goroutine and no call of the store is left.
package croft
