// Package s3 keeps leases in a bucket of Amazon S3, or of a server that speaks
// its protocol, and guards objects there. The bucket is enough: no other
// server, table or queue is needed.
//
// # Leases
//
// Each key is one object under leases/, named by the key's hash. It holds the
// record as JSON. Everything relies on conditional PUT. An object is created
// with "If-None-Match: *", and replaced with "If-Match" and the ETag that was
// read. A release writes a freed record.
//
// Every body has a new nonce, so no ETag comes back. A writer that lost its
// reply reads the object to see whether it is its own. The SDK's retries are
// off for these writes: if a first copy had succeeded, the second would be told
// that another was faster. When a store is opened, a trial finds endpoints that
// ignore conditions, and Open refuses them.
//
// Acquiring a free key takes two requests. A renewal or a release takes one:
// the process remembers its own last write, and the condition tells whether it
// is still there.
//
// # Clock
//
// Leases go by the service's clock: the Date of its responses. The Date is in
// whole seconds, and some servers make it once a second, so it may be up to two
// seconds behind. Deadlines are set by the latest possible time and judged by
// the earliest. So a lease that its holder has left is taken one to three
// seconds after its TTL has passed, and never before.
//
// # Deleting
//
// Services differ in conditional DELETE, so no lease relies on it. A record
// that has not been used for the retention is first replaced, on condition, by
// an announcement. Then a DELETE is sent that is signed for ten seconds from
// the announcement: the service itself refuses it later. Nobody writes a record
// in place of an announcement until thirty seconds have passed.
//
// This assumes that a service carries out a DELETE within twenty seconds of
// accepting it, and that no DELETE is delivered twice. The DELETE also has
// "If-Match". If the service knows that condition, even a second delivery does
// no harm.
//
// # Guards
//
// An ETag does not change when metadata does, nor when the same bytes are
// written again. So an object cannot carry its own mark. The commit point of a
// guarded object is a manifest beside it, KEY.fence. It has the mark, a nonce,
// and the name and SHA-256 of the payload. The payload is an object under
// KEY.fence.d/ that is never changed. [Guard.Open] reads the payload that the
// manifest names.
//
// The plain object KEY is a copy for readers that do not know of the guard. It
// follows the manifest and may be behind for a moment. If its writer died, it
// is behind until the next write.
//
// # Goroutines
//
// A listing reads up to 16 records at once, and waits for all of them. A large
// guarded write has one goroutine that reads the caller's content, and one for
// each part that is in flight. At most three parts are in memory. The write
// waits for its parts. It does not wait for a reader that hangs: that goroutine
// ends when its Read returns. Package store/cas has the other goroutines of a
// store: those of a batch and of a sweep. The caches of a store have their own
// mutexes.
//
// # URLs
//
// A store is s3://BUCKET/PREFIX, a guarded object s3://BUCKET/KEY. Options:
// region=, endpoint=https://HOST (path-style addresses then, unless
// path_style=false), profile=, probe=off, and for a store retention=24h.
// Credentials are found as the AWS tools find them.
package s3
