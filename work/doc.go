// Package work is the ledger: items of work whose completion counts once.
//
// An [Item] is what needs progress. Inside it is the ownership record of package tenure, under the same law and the same token rule: whoever claims an
// item holds a lease on it, and every later write about it, from the heartbeat to the completion, is one conditional write on the item's token. A worker that was
// presumed dead and replaced gets a [*fence.StaleError], nothing it sends changes anything, and the refusal is kept for operators to read.
//
// What completing an item sets off goes through the outbox: an [Effect] is written in one transaction with the completion, under an identity that survives
// re-attempts (item, effect name, generation). A refused completion has none.
//
// [Apply], [Grant], [Take] and [Settle] are the law: pure functions of what the ledger remembers, a request and the ledger's time. They are at once the
// specification, the implementation that a ledger may call, and the oracle that package work/worktest compares every ledger with. A [Ledger] only makes each of
// them one atomic step.
//
// [Run] is a worker: it claims items, does them, keeps them alive and completes them. Package work/steward has the two housekeepers, each under a lease of its own: the
// reconciler and the dispatcher of effects.
package work
