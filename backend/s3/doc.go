// Package s3 keeps leases in a bucket of Amazon S3 or of a server that speaks its protocol, and guards objects there. The bucket is enough: there is no server, table or queue beside it.
//
// # Leases
//
// A key is one object, named by the key's hash under leases/, that holds the record as JSON. All rests on conditional PUT: an object is created with "If-None-Match: *" and replaced with
// "If-Match" of the ETag that was read. A release writes a freed record. Every body has a fresh nonce in it, so no ETag comes back, and a writer whose reply was lost reads the object to see whether it is its
// own. The SDK's retries are off for these writes: a second copy of one that had succeeded would be told that another was faster. An endpoint that ignores conditions is found out by a trial when the store
// is opened, and refused.
//
// Acquiring a free key takes two requests, a renewal or a release one: what this process wrote last is remembered, and the condition tells whether it is still true.
//
// # Clock
//
// Leases go by the service's clock: the Date of its responses. That is in whole seconds, and some servers make it once a second, so it may be behind by up to two. Deadlines are set by the latest time it may be and
// judged by the earliest. A lease that its holder has left is therefore taken one to three seconds after its TTL has passed, and never before.
//
// # Deleting
//
// Services disagree on conditional DELETE, so no lease rests on it. A record that has not mattered for a retention is first replaced, on condition, by an announcement, and then deleted by a request that is
// signed for ten seconds from the announcement: the service itself refuses it later. Nobody puts a record in the place of an announcement until thirty seconds have passed. What is assumed is that a
// service carries out a DELETE within twenty seconds of accepting it, and that none is delivered twice; where the service knows "If-Match" on a DELETE, which is sent, that does no harm either.
//
// # Guards
//
// An ETag does not change when metadata does, nor when the same bytes are written again, so an object cannot carry its own mark. The commit point of a guarded object is a manifest beside it, KEY.fence: the mark,
// a nonce, and the name and SHA-256 of the payload, an object under KEY.fence.d/ that is never changed. [Guard.Open] reads what the manifest says. The plain object KEY is a copy for readers that know nothing
// of this; it follows the manifest, and may be behind for a moment, or until the next write when its writer died.
//
// # URLs
//
// A store is s3://BUCKET/PREFIX, a guarded object s3://BUCKET/KEY. Options: region=, endpoint=https://HOST (path-style addresses then, unless path_style=false), profile=, probe=off, and for a store retention=24h. Credentials are
// found as the AWS tools find them.
package s3
