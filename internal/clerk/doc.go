// Package clerk is what ledgers in SQL databases have in common: how a batch of requests is carried out in a transaction by the law of package work, and how an
// item is written into a row; and what guards there have in common: where a mark is kept, and how a decision of package fence is carried out on it.
package clerk
