// Package etcd keeps leases in etcd, and guards data in it.
//
// A [Store] takes the caller's own client, or a URL
// "etcd://user:password@host:2379,host:2379/prefix" ("etcds" for TLS), with
// ?cert=, ?key=, ?cacert=, ?servername= and ?retention=24h. A [Guard] checks
// writes to data in etcd. Its URL is that of the cluster, with the name of the
// guarded key behind "#". This comment is about the store.
//
// # Words
//
//   - Lease: a lease of Croft. An etcd lease is always called so. One etcd
//     lease carries all leases of one store that have the same TTL.
//   - Key: a key of Croft. Keys of etcd are called records, pages and so on.
//     The type naming lists them.
//   - Stored record: the record of package tenure, packed, with the etcd lease
//     that carries it, and whose clock its times are on.
//   - Live key: an etcd key that exists as long as its etcd lease does.
//   - Page: an etcd key that says when up to 96 leases were renewed last. Each
//     lease has a slot on its page. A member is the store's own note of a lease
//     on one of its pages.
//   - Shelf: an etcd key with the older part of a key's history.
//   - Queue: the stores in which callers wait for a key. Each has an entry.
//   - Successor: one of the first two stores in a queue.
//   - Offer: a freed record, written into the entry of the first in the queue.
//   - Bid: a request without its secret, left in a queue entry. An award is the
//     grant of a key to a bid (see package tenure).
//   - Topic: a key for which callers of this store wait, or did lately.
//   - View: what this store knows of a key at one revision of etcd.
//   - Group: the requests of one call of Apply that are about one key.
//   - Batch: groups that one transaction carries out.
//   - Own: of this store.
//
// # How a request is carried out
//
// etcd cannot run the law of package tenure, so this store applies it. It
// decides on a view, which may come from its cache. One transaction then writes
// the result, on the condition that nothing has changed that the decision rests
// on. If something has changed, the same transaction reads the key instead, and
// the store decides again on the new view.
//
// Apply divides its requests into groups and works in rounds. In each round
// every group takes one step (see decide, send and takeAnswer):
//
//   - looking: read the key. A refusal counts only if it was decided on a view
//     that was read for these requests, not on a cached one.
//   - writing: replace the record, on condition of its mod_revision. A grant or
//     renewal also has the condition that the live key exists.
//   - renewing: note the renewal on the page, on condition that the record is
//     unchanged.
//   - finished.
//
// A batch is sent in one of three forms. A batch of one group is "single". A
// "joint" batch has the conditions of all groups together: all take effect or
// none. In a "nested" batch every group is a transaction within the
// transaction. That costs etcd about twice as much. So it is used only if some
// groups read or renew, or if other clients work on the same keys. A call
// without an answer has an unknown outcome, and the law makes sending the
// request again safe.
//
// # Etcd leases and renewals
//
// An etcd lease lasts two to three seconds longer than the TTL of its leases.
// The store keeps it alive only when it grants or renews a lease on it. So no
// answer promises more than etcd does, and the etcd lease of a store that died
// expires. If its live key is gone, all leases that it carried are over.
//
// A renewal does not write the record. It writes the page, in a transaction
// that compares the live key, the page and every record concerned. Readers add
// the page to the record. If a lease is not renewed by its deadline, its store
// writes the page once more. By that, others see that the lease is over,
// although the etcd lease lives on.
//
// # Clocks
//
// etcd tells no time. A record says whose clock its deadline is on. Another
// store takes the lease to be over in one of three cases:
//
//   - The live key is gone.
//   - The clock is its own, and has passed the deadline. All processes of one
//     boot of a machine share a clock.
//   - The other clock must have passed the deadline: it was seen to say a time
//     for this key, and enough time has passed here since, less 5 %.
//
// So clocks need not agree. They must only run at about one rate. The lower
// bound of a new token is the clock of the store that is granted the lease.
//
// # Waiting
//
// A store enters a key's queue with an entry on an etcd lease of its own, so
// that entries of dead stores vanish. It watches only its own entry. A release
// writes the freed record into the entry of the first: an offer. The second is
// told that it is next, and asks a tenth of a second later. If both have left,
// the release deletes all entries, and every waiting store asks. An operator's
// act does so, too. An offer is a hint: the law decides on any request as if
// there were no queue.
//
// A key that changes hands often is handed over in one write:
//
//   - A store that waited for the key within the last 15 seconds asks for it
//     again. In the transaction that reads the key it enters the queue, and
//     leaves a bid. The bid names the etcd lease and the slot for its lease.
//   - The holder reads the queue while it works. Its release awards the key to
//     the first bid, if that is young, and writes the record into the bidder's
//     entry. The bidder may be dead if its bid is older, so it gets an offer.
//   - The bidder's watch shows the record. The store wakes its caller, which
//     asks again with the same secret. The store answers from memory.
//   - If no caller claims the award, the store releases the key again.
//
// # History
//
// The history is most of a record, and all but its newest part never changes.
// When a record has more than eight terms, all but the newest move to the
// shelf, in the transaction that writes the record. The record names the newest
// token on the shelf. Nothing is decided on a record whose shelf is not known.
//
// # Restored backups
//
// A revision that is lower than an earlier one means that etcd was restored
// from a backup. Then the store empties its cache and begins its watches anew,
// because the revisions that it knows mean nothing there.
//
// # Goroutines and locks
//
// Store.mu protects the cache, the etcd leases, the own pages and their
// members, the topics and the own bids. It is never held during a call of etcd.
//
// An etcdLease, an ownPage and a topic each have a lock that is held during
// calls: while the etcd lease is extended, the page is written, the queue is
// entered or left. These locks are channels, so that waiting for one can end
// with a context, as it does for the first two. A batch takes the locks of its
// pages in the order of their numbers. A goroutine may take an etcd lease's
// lock while it holds a page's or a topic's, not the other way round. Store.mu
// is taken after all of these.
//
// The other mutexes (ages, clocks, sweeping, Guard) protect small states of
// their own. Of these only sweeping.mu is held while Store.mu is taken.
//
// Goroutines in the background:
//
//   - one for each topic watches the own entry in the queue (watchEntry);
//   - one keeps the etcd lease of the queue entries alive (keepQueueLease);
//   - one watches notices of operators' acts while somebody listens;
//   - at most one sweeps;
//   - others make one call or a few: they enter or leave a queue, poll a key,
//     offer it, read its queue, return an award or write a page.
//
// Close waits for all of them (Store.done). It first returns unclaimed awards,
// and at last revokes the etcd leases that carry nothing.
package etcd
