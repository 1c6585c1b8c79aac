// Package sqlite keeps leases in a SQLite database, a file on one machine and nothing else, and guards rows there: whose writes still count is decided in the
// caller's own transaction.
//
// The store takes a path, a URL "sqlite:///path/to/file.db", or the caller's own database. A batch of requests, and whatever other goroutines ask for meanwhile, is
// one transaction: BEGIN IMMEDIATE, the clock read after the lock was had, the law of package tenure applied to each key's record, one commit that is on the disk before anybody is
// told. What changes nothing costs no flush.
//
// A writer that is stopped in the middle of its transaction keeps all others out; they are told who it is after [Options.LockWait], and nothing is lost. The tables are
// made on first use; [Schema] is their text.
package sqlite
