// Package cli has what the commands of croft share: the streams and flags of a
// run, opening stores, ledgers and guards, leases and stamps from files and the
// environment, the only table from errors to exit codes, and printing.
//
// App is one run of the program. Every package of commands embeds it in a type
// of its own, and has its commands as methods of that type. App is made before
// the command starts, and only one goroutine changes it.
//
// Opening a store or a ledger, and asking whether an owner is current, run on a
// goroutine that is left behind if a system call never returns. The types
// progress and Metrics say what their goroutines do. Proxies ask lateLedger
// from many goroutines; its mutex guards its ledger.
package cli
