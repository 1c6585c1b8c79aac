// Package clerk is what ledgers in SQL databases have in common: how a batch of requests is carried out in a transaction by the law of package work, and how an
// item is written into a row.
package clerk
