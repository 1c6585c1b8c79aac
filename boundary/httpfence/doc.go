// Package httpfence fences HTTP services: it refuses the writes of owners that
// have been replaced.
//
// A client sends its stamp in the header [Header]; a [Transport] adds it. There
// are three ways to check it:
//
//   - [Require] hands the stamp to the service's handler, which admits it in
//     the same transaction as its write. It is the best way if there is a
//     transaction.
//   - [Gate.Middleware] stands before a handler that has none. It keeps the
//     marks, and lets one write in at a time.
//   - A [Proxy] stands in front of a service that cannot be changed.
//
// # What makes check and write one step
//
// A service behind a Proxy knows nothing of stamps. So writes must reach it in
// the order in which they were admitted. A [Gate] ensures that for each
// resource:
//
//   - It holds a lease that makes it the only gate of the resource.
//   - It lets one write in at a time.
//   - It raises the mark durably before it sends the write on.
//   - It lets the next write in only when the service has answered, even if the
//     client has left.
//
// If no answer comes, the write may still be on its way. Then the gate closes
// the resource until the write has settled.
//
// The settle time is the one promise that the caller makes: anything sent to
// the service takes effect within it, or never. See docs/boundary-http.md for
// what follows from that.
//
// Package internal/admission has what a gate does, and what the terms of its
// leases tell the next gate.
package httpfence
