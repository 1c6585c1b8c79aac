// Package postgres keeps leases, guards and a ledger of work in PostgreSQL.
//
// A [Store] takes the caller's own pool, or a URL
// "postgres://user:password@host/database". It sends a batch of requests, of
// any kind, in one round trip: one call of one function. The function applies
// the law of package tenure to every key under that key's row lock. It decides
// by the server's own clock, read after the lock. It skips a key that another
// transaction has locked, so that key delays no other key of the batch. The
// store asks for it again alone.
//
// A [Guard] decides in the caller's own transaction whether its writes still
// count. A [Ledger] keeps items of work.
//
// Everything lives in one schema, by default "croft". The first use makes it.
// [Schema] returns its text for a DBA who makes it by hand. After that, a role
// needs no right to create anything.
//
// # Statements and functions
//
// The folder queries has the statements that Go sends, each under its name. The
// folder migrations has the tables and the functions. Every statement that
// calls a function also asks for the schema's version. So an older schema fails
// the statement, and the client brings the schema up to date (setup) and sends
// the statement again. A server that has the schema is asked nothing extra.
//
// # Waiting for a key
//
// A store has at most one connection that listens (listener). It serves the
// watches of all keys and the announcements of operators' acts. Notifications
// go to the store's hub, which wakes its waiters: see package internal/turns.
// The table waiter has the queues: which stores wait for which key.
//
//   - The first watch opens the connection. Watches that come meanwhile wait
//     for the same attempt. It stays open until it breaks or the store is
//     closed.
//   - The listener probes the connection with a notification to itself. If that
//     does not come back, a transaction pooler is in between. The store does
//     not try again for five minutes, and waiters poll.
//   - If the connection breaks, all watches end. Their owners poll, and may
//     watch again. The next watch opens a new connection.
//
// The listener's mutex protects its connection. It is never held while the
// server is asked.
//
// # Waiting for work
//
// A ledger has a listening connection of its own while a worker waits
// (workListener in ledger_wake.go). The table idle has the queues in which a
// worker has found nothing: these are armed. A change that adds work to an
// armed queue notifies once and disarms it, because every notification slows
// down all of the server's commits. (A change in a caller's own transaction
// always notifies: nobody knows which queues are armed when it commits.) The
// next claim that finds nothing arms the queue again. Then it looks once more,
// because work that was added before told nobody. Two gaps remain: a
// transaction may look at idle before a queue is armed, or while another
// notifies, and commit after the worker has looked. Therefore the listener
// repeats every hint after 25 ms and 250 ms.
//
// The listener's mutex protects the set of waiters. It is never held while the
// server is asked, because claims look there.
//
// # Goroutines
//
// Each listening connection has one goroutine, which ends with it. Closing the
// store or the ledger waits for it. A call whose batch met locked rows asks for
// up to four of them at the same time, with a goroutine for each, and waits for
// all. The server's row locks alone order different clients.
package postgres
