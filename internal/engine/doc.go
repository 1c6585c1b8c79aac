// Package engine decides everything that a client decides: when to ask the
// store for a key, which requests to send together, when to renew a lease, and
// when a lease is over.
//
// The engine is one state machine. It has no goroutine, no clock, no lock and
// no I/O. Its user tells it what happened ([Engine.Begin], [Engine.Answered],
// [Engine.Hint], [Engine.Tick] and so on), then takes one [Ready] and carries
// it out. It is made for two users: package croft, which will run it on a real
// store, and proof/sim, which will run it from a seed. Neither does so yet.
//
// # Nouns
//
//   - A call is what one caller wants, until it is answered or abandoned.
//   - An attempt asks the store for one thing with one secret. It may send
//     several copies of its request.
//   - A queue holds the acquires of this client that wait for one key. Only the
//     first of them talks to the store.
//   - A lease is a grant that the engine keeps: it is renewed until it is lost
//     or given back.
//   - A request is one copy, waiting in the outbox or in flight.
//   - A batch is several requests in one call of the store.
//   - A hint is what the store announces about a key.
//   - A reply is the outcome of a call.
//
// # An acquire
//
// Begin puts the call at the end of its key's queue. The first call in a queue
// makes an attempt. Its request goes into the outbox, and from there into the
// next batch. If the store grants it, the engine makes a lease and replies. If
// the store says that the key is held, the call asks again later: after a hint,
// after a pause, when the holder's lease ends, and once more when the caller's
// patience ends. The other calls in the queue wait for their turn. If the
// caller wants no more than one try, or its patience ends, it learns what the
// store tells the first call. A call whose work was done in its period waits
// beside the others: the key may be had by a call with another period.
//
// # An unknown outcome
//
// An answer can be lost. Then the attempt sends its request again with the same
// secret: the law grants a secret only once, so copies do no harm. If the caller
// leaves while a copy may have been granted, the attempt goes on without it and
// releases the grant.
//
// # Batches
//
// While a batch is in flight, new requests gather in the outbox and form the
// next one. A batch without an answer for a second is overtaken. Copies of a
// request that was not answered are sent apart from others, because they may be
// the reason for the silence.
package engine
