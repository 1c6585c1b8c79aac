// Package admission is what all gates have in common: it lets writes to a
// resource in, one at a time, and only those whose stamps still count.
//
// It knows nothing of protocols. A gate around HTTP (boundary/httpfence) or MCP
// (boundary/mcp) reads a [Write] from its own requests, and says how each write
// that was let in has ended. The package comment of httpfence says on which
// promise that relies.
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
package admission
