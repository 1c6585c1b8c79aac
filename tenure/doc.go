// Package tenure is the law of ownership: who may try, until when, and how they came to hold it.
//
// A [Record] is what a store remembers of one key. Every change is one [Request], and [Apply] is the law: a pure function of
// record, request and the store's time. It is at once the specification, the implementation of every compare-and-swap store, and the oracle
// that tests compare every other store with.
//
// The package is pure: no I/O, no clock, no goroutine.
package tenure
