// Package engine decides everything that a client decides: when to ask the
// store for a key, which requests to send together, when to renew a lease, and
// when a lease is over.
//
// The engine is one state machine. It has no goroutine, no clock, no lock and
// no I/O. Its user tells it what happened ([Engine.Begin], [Engine.Answered],
// [Engine.Hint], [Engine.Tick] and so on), then takes one [Ready] and carries
// it out. It has two users: package croft runs it on a real store, and
// proof/sim runs it from a seed.
//
// # Nouns
//
//   - A call is one wish of one caller, until it is answered or abandoned.
//   - An attempt asks the store for one thing with one secret. It may send
//     several copies of its request.
//   - A queue holds the acquires of this client that wait for one key. Only the
//     first of them, the head, talks to the store.
//   - A lease is a grant that the engine keeps: it is renewed until it is lost
//     or released.
//   - A request is one copy, waiting in the pipeline or in flight.
//   - A batch is several requests in one call of the store.
//   - A hint is an announcement of the store about a key.
//   - A reply is the outcome of a call.
//
// # An acquire
//
// Begin puts the call at the end of its key's queue. The first call in a queue
// makes an attempt. Its request goes into the pipeline, and from there into the
// next batch. If the store grants it, the engine makes a lease and replies. If
// the store says that the key is held, the call asks again later: after a hint,
// after a pause, when the holder's lease ends, and once more when its WaitFor
// ends.
//
// The other calls in the queue wait for their turn. A call that wants only one
// try, or whose WaitFor has ended, gets the answer that the store gave the
// first call. If the store refuses a call because its work was done in this
// period, the call steps aside: a call behind it with another period may get
// the key.
//
// # An unknown outcome
//
// An answer can be lost. Then the attempt sends its request again with the same
// secret. The law grants a secret only once, so copies do no harm. If the
// caller leaves while a copy may have been granted, the attempt goes on without
// the caller and releases the grant.
//
// A fault (store.FaultError) says that a copy has had no effect, and that
// asking again does not help. It ends an acquire that does not wait, and an
// operator's act, unless another copy may have been granted. All other calls go
// on: the store may only be starting again.
//
// # Hints
//
// A call that must wait asks for hints about its key (Ready.Watch). A hint is
// never believed: it only makes the call ask earlier. The first client that
// asks gets the key. If other clients waited for the key when this one released
// it, within the last second, the call asks for hints before it asks for the
// key. Then its first request enters the store's queue.
//
// An operator's act is a hint to the holder, on stores that announce acts. The
// engine then renews the lease on that key out of turn. The store refuses, and
// the lease ends.
//
// # Batches
//
// While a batch is in flight, new requests gather in the pipeline and form the
// next one. If a batch has no answer for a second, it hangs, and the next batch
// may overtake it. Copies of a request that was not answered travel apart from
// first requests, because they may be the reason for the silence.
package engine
