// Package server serves a lease store over HTTP, so that programs in every
// language can use it, on machines that must not hold the store's password.
// "croft serve" runs it, and backend/remote is its client in Go. docs/server.md
// has the API.
//
// A server adds no law of its own. It carries requests to the store behind it,
// and answers with the store's answers. It keeps no leases, so any number of
// servers may stand on one store, and a lease outlives the server through which
// it was acquired.
//
// # Work items
//
// With [Options.Ledger] the server also serves a ledger, in the same way: it
// carries requests to the ledger, and adds no law. A claim goes to the ledger
// only while its client is there, and is given back if the client has left when
// the ledger answers. Items can be long. So few calls that bring items are in
// flight at a time, long claims are made in pieces, and an answer leaves out
// bytes that its client can read one item at a time.
//
// # Files and signed stamps
//
// With [Options.Files] the server offers guarded files. It asks its own store
// whether the owner of a write is the current one, before the guard does. With
// [Options.SignKey] it signs the stamps of the leases that it grants and of the
// items that are claimed, and takes writes to files only under signed stamps.
//
// # Who may what
//
// [Access] identifies clients, and decides what each may do with a key. A key
// that an identity may not read is answered like a key that does not exist. The
// owner in a record is the identity's name, and so is the actor of an act by
// hand. A rule about the prefix of a queue's keys is a rule about the queue.
// Without Access everybody may do everything, under the name that they give:
// serve that on a loopback address only.
//
// # Calls of the store
//
// Requests of all clients go to the store through one batcher. While a call of
// the store is in flight, requests gather, and go out together in the next
// call. A call that has no answer for [overtakeAfter] hangs, and the next one
// may overtake it. At most [maxFlying] are in flight. The requests of one
// client's batch stay together and in order. A client that leaves does not end
// the call that its requests are in, because others' may be in it too. Its
// requests that still wait do not go out any more.
//
// # One renewal
//
//  1. The engine of a client sends a batch to its store, which is remote.Store.
//     That writes it as JSON (wire.Batches), and sends it in one call.
//  2. Server.answer finds out which identity asks (Access.Identify).
//     Server.apply reads the batch strictly (wire.ReadBatch). admit asks the
//     policy about each request, and writes the identity's name into it.
//  3. batcher.apply puts the admitted requests into the queue. If no call of
//     the store is in flight, or all hang, send takes all that wait for one
//     call, and carry makes it.
//  4. Each client gets its own answers (wire.Answers). A refusal has the key's
//     record, so Problem.Err makes the law's own error again at the client.
//  5. classify decides at the client whether a broken call was a fault: only if
//     it never had a connection.
//
// # Goroutines
//
// net/http runs one goroutine per call. Each call of the store has a goroutine
// of its own. A mutex in the batcher guards the requests that wait and the
// number of calls in flight. Streams, and acquires that wait, end with their
// client, or when [Server.Drain] is called. Each kind of work has a number of
// slots, and each body a bound.
package server
