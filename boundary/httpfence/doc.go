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
// # How a gate works
//
// Each resource in use has a state. It has a queue, and one write at a time has
// the turn. The write that has the turn owns the resource's lease, mark and
// doubt, without a lock. Only the newest mark seen, and whether a write is
// inside, can be read without the turn: they are atomic. The gate's mutex
// guards the table of resources and the usage of each client. No call to a
// store, a guard or the service happens under a mutex.
//
// A write passes through these states, on the goroutine of its request:
//
//   - It arrives. It counts against its client, and may be refused before its
//     body is received.
//   - It waits for its turn. Newer owners of the same key go first.
//   - The gate takes its lease if it has none. If the resource is closed, the
//     write waits until it opens.
//   - The gate raises the mark to the write's stamp. The write is inside.
//   - Its passage ends in one of three ways: answered, not sent, or in doubt.
//     In doubt closes the resource. Then the turn passes on.
//
// One more goroutine per gate gives back the leases of idle resources. Close
// takes the turn of every resource and keeps it.
//
// # What the terms of a lease tell
//
// The terms of the gate's lease tell the next gate what may still be on its
// way:
//
//   - A gate releases its lease as a success only when nothing is on its way.
//     The next gate begins at once.
//   - After any other end, the next gate waits for the settle time.
//   - An operator's term counts as a success only if [Reopen] made it. Then an
//     operator has looked. Others who took the key by hand have not.
//   - A term in which a write was left in doubt is closed to its end, and its
//     record says so. When the write has settled, the gate releases that term
//     and begins a new one. So an operator who ends a closed term knows that
//     nothing was sent in it since.
package httpfence
