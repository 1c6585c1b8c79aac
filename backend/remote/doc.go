// Package remote is the client of a Croft server: a lease store and a ledger of
// work items behind HTTP. Package server is the other end, and "croft serve"
// runs it.
//
// The URL is the server's own, such as "https://croft.example/", with the
// options that [Options] describes. Open a store with store.Open after a blank
// import of this package, or with [Open].
//
// A server whose store has no ledger says so in every call about items.
//
// A call of the store is one HTTP request. The law makes nearly every request
// safe to repeat, so net/http may send one again if an idle connection turns
// out to be closed. Claims and takings are not sent again: a second copy would
// take other items. If the reply is lost, the outcome is unknown, and the
// client asks again with the same secret: the same server, or another one on
// the same store.
//
// The client follows no redirects, and sends its token to the host of the URL
// alone. It speaks HTTP/1.1: a call that hangs then holds up no other, because
// each call in flight has a connection of its own.
//
// # Goroutines
//
// Each watch or wake-up has a goroutine that reads its stream. It ends with its
// context, when the stream is silent for too long, or when the store is closed.
// A mutex guards the token that was read last.
package remote
