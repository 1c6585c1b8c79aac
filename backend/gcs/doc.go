// Package gcs keeps leases in a bucket of Google Cloud Storage, and guards objects there.
//
// # Leases
//
// A key is one object, named by its hash under the store's prefix, with the record as JSON that people can read. Every change replaces it on condition of the
// generation that was read (ifGenerationMatch, 0 for an object that is not there yet): of many only one gets it, and the others read again. Nothing else is relied upon. Releasing writes a freed
// record. Dropping an old record writes a tombstone in its place on the same condition; the tombstone is deleted only where the endpoint has been seen to honour the
// condition of a delete.
//
// Every body has a nonce of its own, so a writer whose reply was lost finds out by reading whether the object is its own. The client library's own retries are off.
//
// Time is the service's, from the Date of its answers, which is in whole seconds: a deadline is set by the latest time that it may be and judged by the earliest.
//
// # Guards
//
// A guarded object carries its mark in its own metadata. A write replaces it, and a raise changes its metadata, on condition of both the generation and the
// metageneration under which the mark was read: a raise changes the one, a write of any bytes, even the same, the other.
package gcs
