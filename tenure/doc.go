// Package tenure decides who owns a key, and until when.
//
// A [Record] holds everything that a store remembers of one key. A [Request]
// asks for one change of it: acquire, renew, report, checkpoint, release, or an
// operator's takeover, reservation or revocation. [Apply] is the law. It is a
// pure function of the record, the request and the store's time. It returns the
// record to keep, or a refusal.
//
// # Vocabulary
//
//   - A key names a piece of work. At most one holder has it at a time.
//   - A grant gives a key to a holder. The holder makes a [Secret] before it
//     asks, and the store keeps only the secret's fingerprint, a [fence.Grant].
//   - A term is the time of one grant, from the acquire to its end. It ends by
//     release, at its deadline, or by an operator's act.
//   - A transfer is the step that begins a term, a reservation or a revocation.
//     The record remembers the last [HistoryLen] of them.
//   - Every transfer takes a new token, a [fence.Token] above all tokens before
//     it. Guarded resources compare tokens: see package fence.
//
// # One law for every store
//
// Stores that compare and swap whole records call Apply itself. Stores that
// decide on a server, in Lua or SQL, repeat the law there, and the tests
// compare their answers with those of Apply.
//
// The package does no I/O, reads no clock and starts no goroutines.
package tenure
