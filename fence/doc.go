// Package fence decides which writes still count.
//
// A lease says who may try to do some work. It cannot stop a worker that was
// presumed dead, wakes up late and writes anyway. Fencing can: the resource
// itself refuses the write.
//
// Every write carries a [Stamp]: the key, the token and the grant of the lease
// under which it is made. A guarded resource keeps a [Mark], the newest stamp
// it has admitted. [Mark.Admit] is the one rule that decides whether a write is
// admitted: it refuses a token below the mark's.
//
// The resource must check the stamp and write the data in one atomic step. A
// refused write changes nothing, neither the data nor the mark.
//
// The package does no I/O and starts no goroutines. Only [Stamp.CheckNow] and
// the text of a [StaleError] read this machine's clock; other functions take
// the time as an argument. No value of the package holds a secret. But where
// stamps are signed, a signed stamp in a log lets its readers write under it
// until a newer owner comes.
package fence
