// Package gcs keeps leases in a bucket of Google Cloud Storage, and guards
// objects there.
//
// # Leases
//
// Each key is one object under the store's prefix, named by the key's hash. It
// holds the record as JSON that people can read. Every change replaces the
// object on condition of the generation that was read: ifGenerationMatch, with
// 0 for an object that does not exist yet. Of many writers only one succeeds,
// and the others read again. The store relies on nothing else.
//
// A release writes a freed record. Dropping an old record writes a tombstone in
// its place, on the same condition. The tombstone is deleted only if the
// endpoint has been seen to honour the condition of a delete.
//
// Every body has a nonce of its own. So a writer that lost its reply reads the
// object to find out whether it is its own. The client library's own retries
// are off.
//
// The time is the service's, from the Date of its answers, which is in whole
// seconds. A deadline is set by the latest possible time and judged by the
// earliest.
//
// # Guards
//
// A guarded object has its mark in its own metadata. A write replaces the
// object, and a raise changes its metadata. Both are conditional on the
// generation and the metageneration under which the mark was read. A raise
// changes the metageneration. A write changes the generation, even if it writes
// the same bytes.
//
// # Goroutines
//
// A listing reads up to 64 records at once, and waits for all of them. A
// guarded write reads the caller's content in a goroutine of its own, so that
// it can return when ctx ends. If that reader hangs, the goroutine ends when
// its Read returns. Package store/cas has the other goroutines of a store:
// those of a batch and of a sweep. The mutex of pace guards the times of the
// last writes. It is not held while a call waits. The caches of a store have
// their own mutexes.
package gcs
