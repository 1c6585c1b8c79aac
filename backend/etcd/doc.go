// Package etcd keeps leases in etcd, and guards data in it.
//
// A [Store] takes the caller's own client, or a URL
// "etcd://user:password@host:2379,host:2379/prefix" ("etcds" for TLS), with
// ?cert=, ?key=, ?cacert=, ?servername= and ?retention=24h. A [Guard] checks
// writes to data in etcd. Its URL is that of the cluster, with the name of the
// guarded key behind "#". This comment is about the store.
//
// A lease is a lease of Croft. An etcd lease is always called so. A key is a
// key of Croft. The type naming lists the keys of etcd.
//
// # How a request is carried out
//
// etcd cannot run the law of package tenure, so this store applies it. It
// decides on a view: its knowledge of the key at one revision. One transaction
// then writes the result, on the condition that nothing has changed that the
// decision rests on. If something has changed, the same transaction reads the
// key instead, and the store decides again. A refusal counts only if the key
// was read for that request.
//
// Apply divides its requests into groups, one for each key, and works in
// rounds. In each round a group takes one step: it reads the key or writes it.
// All groups go into one transaction, each as a transaction within it. A call
// without an answer has an unknown outcome, and the law makes sending the
// request again safe.
//
// # Etcd leases and heartbeats
//
// One etcd lease carries all leases of one store that have the same TTL. It
// lasts two to three seconds longer than the TTL. The store keeps it alive only
// when it grants or renews a lease on it. So no answer promises more than etcd
// does, and the etcd lease of a store that died expires.
//
// A held key has a heartbeat: a second etcd key, on that etcd lease. If it is
// gone, the lease is over. A renewal does not write the record, except once an
// hour. It writes the heartbeat, which says when the lease was renewed last. If
// a lease is not renewed by its deadline, its store writes the heartbeat once
// more. By that, others see that the lease is over, although the etcd lease
// lives on.
//
// # Clocks
//
// etcd tells no time. A record says whose clock its deadline is on. Another
// store takes the lease to be over in one of three cases:
//
//   - The heartbeat is gone.
//   - The clock is its own, and has passed the deadline. All processes of one
//     boot of a machine share a clock.
//   - The other clock must have passed the deadline: the key's record or
//     heartbeat has said a time, and enough time has passed here since, less
//     5 %.
//
// So clocks need not agree. They must only run at about one rate.
//
// # Waiting
//
// Package internal/turns decides whom to wake. The queue of a key has an entry
// for each store in which callers wait, on an etcd lease, ordered by
// create_revision. A store enters in the transaction that reads the key for an
// acquire. It watches only its own entry.
//
// A grant reads the first two entries. The release then offers the key to the
// first: it writes the freed record into that entry, in the same transaction.
// That store claims the key with one more. The second is told that it is next,
// and asks a moment later. An operator's act deletes all entries, and so wakes
// every waiting store.
//
// # Restored backups
//
// A revision that is lower than an earlier one means that etcd was restored
// from a backup. Then the store empties its cache and begins its watches anew,
// because the revisions that it knows mean nothing there.
//
// # Goroutines and locks
//
// Store.mu protects the views and the etcd leases. It is never held during a
// call of etcd. An etcdLease has a lock that is held during calls. It is a
// channel, so that waiting for it can end with a context. listener.mu protects
// the watches. The mutexes of clocks and Guard protect small states of their
// own.
//
// Goroutines in the background watch queue entries and operators' acts, write
// heartbeats of lapsed leases, offer freed keys, and sweep. Close waits for all
// of them. At last it revokes the etcd leases that carry nothing.
package etcd
