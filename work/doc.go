// Package work keeps a ledger of work items and decides whose result counts.
//
// An [Item] is one piece of work in a queue. A worker claims it, and then holds
// a lease on it: a token, a deadline and heartbeats. Every later write about
// the item is a conditional write on that token, from the heartbeat to the
// completion. The ledger accepts it only while the worker's claim is the
// newest.
//
// So a worker that was presumed dead and replaced cannot complete the item. The
// ledger answers it with a [*fence.StaleError], changes nothing, and keeps a
// [Refusal] for operators to read.
//
// Side effects of an item go through the ledger's outbox. A completion writes
// each [Effect] in the same transaction as the result. A refused completion
// writes none. The identity of an effect is the item, its generation and the
// effect's name. So it is the same whichever attempt completes the item, and
// receivers get it as their idempotency key.
//
// An item may name guards: files, rows or objects that its owners write to
// directly. A worker raises the fence there before it begins. [Act] raises it
// when an operator or the reconciler takes the item from its owner. So a guard
// refuses the old owner before the next one has written anything.
//
// # Where to begin
//
// [Open] opens a ledger by its URL. [Enqueue] adds an item. [Run] is a worker:
// it claims items, runs a [Handler] for each, keeps the items alive and
// completes them. [Handle] makes a Handler that takes a typed payload. Package
// work/steward has the two housekeeping jobs, each under a lease of its own.
// The reconciler requeues the items of dead workers. The dispatcher delivers
// effects.
//
// # The law
//
// [Apply], [Grant], [Turns], [Gate], [Govern], [Take] and [Settle] are the law.
// They are pure functions of
// stored state, a request and the ledger's time. They specify what a ledger
// does, ledgers call them, and package work/worktest compares every ledger with
// them. A [Ledger] only makes each of them one atomic step. The ownership
// record inside an item follows the law of package tenure, with the same
// tokens.
//
// # How a worker runs
//
// Run has one loop, in one goroutine (runner.go). It tells a state machine, the
// engine (engine.go), what happened, and then does what the engine wants: claim
// items, send requests, start handlers, cancel contexts. The engine has no
// goroutine, clock, lock or I/O. Tests drive the same engine step by step, and
// in a simulated world.
//
//   - Handlers and calls of the ledger run in goroutines of their own. Each
//     sends its outcome to the loop as an event, and touches no state of the
//     engine. A handler's goroutine first raises the fence at the item's
//     guards.
//   - There are two locks, both short. One guards the table of handlers that
//     wait for an answer, the other the result that [Job.CompleteIn] has
//     written.
//   - At most one claim, one batch of heartbeats, one batch of other requests
//     and one read of progress are in flight at a time.
//   - An attempt begins when an item is claimed. It ends when the ledger has
//     answered the request that ends it: complete, fail or release.
//   - Until then the engine sends heartbeats for it. The local deadline is a
//     tenth of the TTL before the ledger's, counted from when the request was
//     sent. When it passes, the handler's context ends.
//   - A request without an answer is sent again, with the same secret, until
//     the ledger answers or the worker must leave. Only a handler's own Report
//     or Save is not: the handler gets the error.
//   - Shutdown has four phases: open, finishing (handlers may finish), stopping
//     (their contexts have ended) and leaving (only answers of the ledger are
//     missing).
package work
