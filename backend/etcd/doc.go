// Package etcd keeps leases in etcd, and guards data in it.
//
// Tokens and fencing are as consistent as etcd is. A batch of requests is one transaction; the law is applied by the client, and etcd makes sure that what it was applied to is still there. All leases of one store with
// one TTL live on one etcd lease, and their renewals are notes on a few shared pages, so that ten thousand leases are kept by a handful of small writes. Waiters are woken by a watch; a key that is freed is
// offered to one of them at a time. A holder learns of an operator's act by a
// watch, too.
//
// etcd tells no time. Every record says whose clock its deadline is on: machines compare it with how long they have seen that clock run, and with whether the etcd lease is still there. So clocks need not agree, only
// run at about one rate. The floor of tokens is the clock of whoever is granted the lease.
//
// A store's URL is "etcd://user:password@host:2379,host:2379/prefix" ("etcds" for TLS), with ?cert=, ?key=, ?cacert=, ?servername= and ?retention=24h. A guarded key is named by the URL of its cluster with its name behind "#".
package etcd
