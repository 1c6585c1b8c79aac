// Package postgres keeps leases in PostgreSQL and guards rows there: whose writes still count is decided in the caller's own transaction.
//
// The store takes the caller's own pool, or a URL "postgres://user:password@host/database". A batch of requests of any kind is one round trip: one
// call of one function, which applies the law of package tenure to every key under that key's row lock, by the server's own clock, read after the
// lock. A key that another transaction has locked delays nobody else in the batch: it is skipped, and asked for again alone.
//
// All that the store needs lives in one schema, by default "croft". It is made on first use; [Schema] is its text for those who prefer to make it
// themselves, after which a role needs no right to create anything.
package postgres
