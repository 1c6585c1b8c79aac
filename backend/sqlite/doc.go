// Package sqlite keeps leases and items of work in a SQLite database, which is
// one file on one machine. It also guards rows of such a database: a [Guard]
// decides in the caller's own transaction whether the caller's writes count.
//
// A store takes a path, a URL "sqlite:///path/to/file.db", or the caller's own
// database. It makes its tables on first use; [Schema] is their text.
//
// # Transactions
//
// One goroutine of the store makes all its write transactions. It starts with
// the first request and ends with Close. Each call puts a task into the queue
// and waits until the task is done, its context ends, or the store is closed. A
// caller can therefore leave at any time, even while the disk hangs.
//
// The goroutine takes the oldest task and runs BEGIN IMMEDIATE. When it has the
// write lock, it adds the tasks that have come meanwhile, up to 1000 requests.
// Then it reads the clock, applies the law of package tenure to the record of
// each key, and commits once. Callers get their answers after the commit is on
// the disk. A transaction that changes nothing costs no flush.
//
// The goroutine has a connection of its own (writer), with prepared statements.
// It keeps the records that it has read for the next transaction. PRAGMA
// data_version tells it whether another connection has written since. If so, it
// forgets them. It also forgets them after every failure, and throws the
// connection away, because nobody knows the state of either.
//
// A process that is stopped in the middle of its transaction keeps all others
// out. After [Options.LockWait] their requests fail with [ErrBusy], and the
// error names that process. Nothing is lost.
//
// # Waiting
//
// A second goroutine runs while a caller waits for a key or listens for
// operators' acts (watches). It polls data_version on a connection of its own,
// and compares the watched keys when the number changes. Stores of one process
// on the same file tell each other of changes directly (neighbours).
//
// # The ledger
//
// A [Ledger] makes its transactions on connections of the pool, one at a time
// in a process: the channel mutex holds a token while one is under way.
// Requests that come meanwhile wait in a queue and share the next transaction.
// A transaction that has begun goes on if its caller leaves.
//
// # Files that move or lose their log
//
// A store keeps working on the file that its path leads to. If the file was
// moved or removed, the store closes it and opens the file at the path anew. If
// only the log (FILE-wal) or the shared memory (FILE-shm) was removed or
// replaced, this process must never touch the file again. It may still have the
// old log open, and closing the last connection would copy that log over newer
// data. The process then abandons the file without closing it (abandon).
package sqlite
