// Package overhttp is what all gates over HTTP have in common: how they read a
// stamp and the name of a client from a request, which hosts they answer for,
// how they send a write that was let in, and how long they wait for a client
// that does not read.
//
// A write has a connection of its own and is sent at most once; see
// [Exchange.Send]. One goroutine of the HTTP transport belongs to each
// connection. It asks the lease of the write before every system call, so that
// nothing leaves after the lease, even if the process was stopped in between.
package overhttp
