// Package fence is the law of writing: whose writes still count.
//
// A [Stamp] travels with every write. A guarded resource keeps a [Mark] of the newest stamp it has admitted and decides
// by one rule, [Mark.Admit]. The check and the write must be one atomic step in the resource; a refused write changes
// nothing, neither the data nor the mark.
//
// The package is pure: no I/O, no clock, no goroutine. Every value in it is safe to log.
package fence
