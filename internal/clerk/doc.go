// Package clerk has what ledgers and guards in SQL databases share.
//
// For ledgers it carries out a batch of requests in a transaction, by the law
// of package work. It also converts items, effects and refusals to rows and
// back. For guards it builds the statements for the columns of a mark, and
// carries out a decision of package fence on it.
//
// It has no state and no goroutines. A [Tx] is the caller's open transaction.
package clerk
