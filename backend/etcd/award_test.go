package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// longClaim is an acquire with a TTL that no stall of a test outlasts.
func longClaim(key, owner string) tenure.Request {
	q := claim(key, owner)
	q.TTL = time.Hour
	return q
}

// waitedBefore prepares a store so that it bids for a key: it has held a lease
// of an hour, and has waited for the key lately.
func waitedBefore(t *testing.T, st *Store, key string) *Store {
	t.Helper()
	st.maxBidAge, st.idleInQueue, st.linger, st.queuePolls = time.Hour, time.Hour, time.Hour, nil
	other := longClaim(key+"/other/"+st.id.String(), "ann")
	must(t, st, other)
	must(t, st, then(tenure.Release, other))
	ctx, cancel := context.WithCancel(t.Context())
	wake, err := st.Watch(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range wake { // until it is closed
	}
	testenv.Eventually(t, "it has left the queue", func() error {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.topics[key].queued {
			return errors.New("it is in it")
		}
		return nil
	})
	return st
}

// bids lets a store ask for a held key until its bid is in the queue.
func bids(t *testing.T, st *Store, mine tenure.Request) *ownBid {
	t.Helper()
	// A store that is late does not bid.
	testenv.Eventually(t, "its bid is in the queue", func() error {
		if a := resolve(t.Context(), st, mine); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatalf("the key is held: %v", a.Err)
		}
		if in := queueEntry(t, st, mine.Key); !isBid(in) {
			return fmt.Errorf("there is %q", in)
		}
		return nil
	})
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.topics[mine.Key].bid
}

// queueEntry returns the value of a store's queue entry, or nil.
func queueEntry(t *testing.T, st *Store, key string) []byte {
	t.Helper()
	resp, err := st.client.Get(t.Context(), st.names.waiter(key, st.id))
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0].Value
}

// TestAHandOffIsOneWrite: the release grants the key to the next store. That
// store hears of it and need not ask etcd. Then it is a lease like any other.
func TestAHandOffIsOneWrite(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/one"
	client, w := wired(t, c)
	holder, bidder := waitedBefore(t, open(t, client, c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
	first := must(t, holder, mine)[0].Record
	own := bids(t, bidder, next)
	wake := keepWaiting(t, bidder, key)
	before := versionOf(t, bidder, key)
	seeBid(t, holder, key)
	if calls, fast := w.inTime(func() {
		if a := must(t, holder, then(tenure.Release, mine))[0]; a.Awaited {
			t.Error("who waited has it, and the release says that one still waits")
		}
	}); fast && (calls["Txn"] != 1 || len(calls) != 1) {
		t.Errorf("the release took %v", calls)
	}
	<-wake
	a := resolve(t.Context(), bidder, next)
	if a.Err != nil || a.Record.Owner != "bidder" || a.Record.Token <= first.Token || a.Record.Cause != tenure.Released {
		t.Fatalf("it was granted %+v, %v", a.Record, a.Err)
	}
	if now := versionOf(t, bidder, key); now != before+1 {
		t.Errorf("the record was written %d times", now-before)
	}
	if left := a.Record.Deadline.Sub(a.Now); left > next.TTL || left < next.TTL/2 {
		t.Errorf("it has %s left", left)
	}
	bidder.returnAward(own)
	bidder.mu.Lock()
	given := own.returning
	bidder.mu.Unlock()
	if given {
		t.Error("it was claimed, and is given back")
	}
	must(t, bidder, then(tenure.Renew, next), then(tenure.Release, next))
	if in := queueEntry(t, bidder, key); in != nil {
		t.Errorf("it is still in the queue, with %q", in)
	}
	rec, err := holder.Get(t.Context(), key)
	if err != nil || rec.State != tenure.Free || len(rec.History) != 2 {
		t.Errorf("in the end it is %+v, %v", rec, err)
	}
}

// versionOf returns how often a record has been written.
func versionOf(t *testing.T, st *Store, key string) int64 {
	t.Helper()
	resp, err := st.client.Get(t.Context(), st.names.record(key), clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) == 0 {
		t.Fatalf("no record: %v", err)
	}
	return resp.Kvs[0].Version
}

// TestLaw5ALeaseCountsFromItsBid: the holder's own deadline counts from the
// sending of the bid, whatever the clock of the awarding store says. Other
// stores take the lease to end no earlier.
func TestLaw5ALeaseCountsFromItsBid(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"one clock": 0, "ahead": time.Hour, "behind": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testenv.Etcd(t)
			key := "award/time/" + name
			bidder, holder, other := otherMachine(t, c, 0), otherMachine(t, c, ahead), otherMachine(t, c, -ahead/2)
			if ahead == 0 {
				holder.domain, other.domain = bidder.domain, bidder.domain
			}
			waitedBefore(t, holder, key)
			waitedBefore(t, bidder, key)
			mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
			must(t, holder, mine)
			bids(t, bidder, next)
			const waited = 10 * time.Minute // longer than a holder allows, because it slept
			bidder.mu.Lock()
			own := bidder.topics[key].bid
			if ahead == 0 { // its monotonic clock stood still, or the other was set back
				own.sentWall = own.sentWall.Add(-waited)
			} else {
				own.sent = own.sent.Add(-waited)
			}
			bidder.mu.Unlock()
			keepWaiting(t, bidder, key) // otherwise the award is returned soon
			seeBid(t, holder, key)
			must(t, holder, then(tenure.Release, mine))
			var a store.Answer
			testenv.Eventually(t, "it is granted", func() error {
				a = resolve(t.Context(), bidder, next)
				return a.Err
			})
			if left := a.Record.Deadline.Sub(a.Now); left > next.TTL-waited || left < next.TTL/2 {
				t.Errorf("it has %s left of %s after %s", left, next.TTL, waited)
			}
			if again := resolve(t.Context(), bidder, next); again.Err != nil || again.Record.Deadline.Sub(again.Now) > next.TTL-waited {
				t.Errorf("asked again, it has %s left, %v", again.Record.Deadline.Sub(again.Now), again.Err)
			}
			refused := resolve(t.Context(), other, longClaim(key, "other"))
			var held *tenure.HeldError
			if !errors.As(refused.Err, &held) || held.Remaining() < next.TTL-waited {
				t.Errorf("others are told %v, of %s", refused.Err, held.Remaining())
			}
			renewed := must(t, bidder, then(tenure.Renew, next))[0]
			if left := renewed.Record.Deadline.Sub(renewed.Now); left != next.TTL {
				t.Errorf("renewed, it has %s left", left)
			}
			bidder.mu.Lock()
			// From now on the renewal counts.
			own.sent, own.sentWall = own.sent.Add(-next.TTL), own.sentWall.Add(-next.TTL)
			bidder.mu.Unlock()
			if rec, err := bidder.Get(t.Context(), key); err != nil || rec.Deadline.Before(renewed.Record.Deadline) {
				t.Errorf("renewed until %s, it is said to end at %s, %v", renewed.Record.Deadline, rec.Deadline, err)
			}
			must(t, bidder, then(tenure.Renew, next))
			refused = resolve(t.Context(), other, longClaim(key, "other"))
			if !errors.As(refused.Err, &held) || held.Remaining() < next.TTL/2 || held.Remaining() > next.TTL*3/2 {
				t.Errorf("it was renewed, and another is told %v", refused.Err)
			}
			must(t, bidder, then(tenure.Release, next))
			must(t, other, longClaim(key, "other"))
		})
	}
}

// TestAnAwardThatNobodyClaimsIsReturned: the caller has left before its bid was
// granted. The next one does not wait until that lease is over.
func TestAnAwardThatNobodyClaimsIsReturned(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/gone"
	holder, gone, last := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), open(t, dial(t, c), c.Prefix())
	mine, next := longClaim(key, "holder"), longClaim(key, "gone")
	must(t, holder, mine)
	gone.mu.Lock()
	gone.topics[key].missedWake = false
	gone.mu.Unlock()
	bids(t, gone, next)
	who := newWaiter(t, last, key, 1)
	queued(t, holder, key, 2)
	seeBid(t, holder, key)
	must(t, holder, then(tenure.Release, mine))
	if err := who.wait(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	rec, err := last.Get(t.Context(), key)
	if err != nil || len(rec.History) != 3 || rec.History[1].Owner != "gone" || rec.History[1].Ended != tenure.EndFailed {
		t.Errorf("what was granted to one that had gone is remembered as %+v, %v", rec.History, err)
	}
	if a := resolve(t.Context(), gone, next); !errors.Is(a.Err, tenure.ErrNotOwned) {
		t.Errorf("a late copy of its request is answered %v", a.Err)
	}
}

// TestAnAwardThatIsBeingReturnedIsNotClaimed: a caller that asks just then
// would hold a key that is about to be free.
func TestAnAwardThatIsBeingReturnedIsNotClaimed(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/given"
	client, w := wired(t, c)
	holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, client, c.Prefix()), key)
	mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
	must(t, holder, mine)
	own := bids(t, bidder, next)
	seeBid(t, holder, key)
	w.delay(true) // it cannot return the award
	must(t, holder, then(tenure.Release, mine))
	testenv.Eventually(t, "it is being given back", func() error {
		bidder.mu.Lock()
		defer bidder.mu.Unlock()
		if !own.returning {
			return errors.New("it is not")
		}
		return nil
	})
	if a := one(t.Context(), bidder, next); !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("a request for it is answered %v", a.Err)
	}
	w.delay(false)
	testenv.Eventually(t, "it is known to be over", func() error {
		if a := one(t.Context(), bidder, next); !errors.Is(a.Err, tenure.ErrNotOwned) {
			return a.Err
		}
		return nil
	})
	must(t, bidder, longClaim(key, "bidder again"))
}

// TestAKeyGoesRoundWithOneWriteEach, among three stores. The first rounds may
// need an offer. No entry stays in the queue.
func TestAKeyGoesRoundWithOneWriteEach(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key, stores = "award/round", 3
	var all []*Store
	for range stores {
		all = append(all, waitedBefore(t, open(t, dial(t, c), c.Prefix()), key))
	}
	claims := make([]tenure.Request, stores)
	for n, st := range all {
		claims[n] = longClaim(key, "holder")
		if n == 0 {
			must(t, st, claims[n])
		} else {
			bids(t, st, claims[n])
		}
	}
	all[0].maxBidAge = 0 // the first gets an offer, and the second is told that it is next
	for round := range 4 * stores {
		n, next := round%stores, (round+1)%stores
		wake := keepWaiting(t, all[next], key)
		before := versionOf(t, all[n], key)
		seeBid(t, all[n], key)
		if a := must(t, all[n], then(tenure.Release, claims[n]))[0]; !a.Awaited {
			t.Errorf("hand-off %d: one more waits, and the release does not say so", round)
		}
		all[n].maxBidAge = time.Hour
		<-wake
		must(t, all[next], claims[next])
		writes := int64(1)
		if round == 0 {
			writes = 2
		}
		if now := versionOf(t, all[n], key); now != before+writes {
			t.Errorf("hand-off %d: the record was written %d times", round, now-before)
		}
		claims[n] = longClaim(key, "holder")
		bids(t, all[n], claims[n])
		resp, err := all[n].client.Get(t.Context(), all[n].names.queue(key), clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range resp.Kvs {
			if _, id, _ := all[n].names.waiting(string(kv.Key)); id == all[next].id && round == 0 {
				t.Errorf("hand-off %d: who was asked is still in the queue", round)
			}
		}
		if len(resp.Kvs) > stores {
			t.Errorf("hand-off %d: %d are in the queue", round, len(resp.Kvs))
		}
	}
}

// TestAMissedAwardIsFoundWhenLeavingTheQueue: a store that leaves the queue
// finds an award in its entry, and returns it.
func TestAMissedAwardIsFoundWhenLeavingTheQueue(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/deaf"
	hears := dial(t, c, func(config *clientv3.Config) {
		config.DialOptions = append(config.DialOptions, grpc.WithChainStreamInterceptor(deafen))
	})
	holder, deaf, last := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, hears, c.Prefix()), key), open(t, dial(t, c), c.Prefix())
	// Longer than the holder needs to see the bid, also on a busy machine.
	deaf.idleInQueue = 15 * time.Second
	mine, next := longClaim(key, "holder"), longClaim(key, "deaf")
	must(t, holder, mine)
	bids(t, deaf, next)
	seeBid(t, holder, key)
	must(t, holder, then(tenure.Release, mine))
	testenv.Eventually(t, "it is given back", func() error {
		return resolve(t.Context(), last, longClaim(key, "last")).Err
	})
}

// TestALostReplyToAHandOffLeavesOneTruth: the releasing client learns that it
// has released, and the next one holds the key.
func TestALostReplyToAHandOffLeavesOneTruth(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/lost"
	client, w := wired(t, c)
	holder, bidder := waitedBefore(t, open(t, client, c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
	must(t, holder, mine)
	bids(t, bidder, next)
	wake := keepWaiting(t, bidder, key)
	seeBid(t, holder, key)
	w.lose(true)
	if a := one(t.Context(), holder, then(tenure.Release, mine)); !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("nobody has answered: %v", a.Err)
	}
	w.lose(false)
	<-wake
	must(t, bidder, next)
	must(t, holder, then(tenure.Release, mine))
	if rec, err := holder.Get(t.Context(), key); err != nil || rec.Owner != "bidder" || rec.State != tenure.Held {
		t.Errorf("it is %s of %s, %v", rec.State, rec.Owner, err)
	}
	must(t, bidder, then(tenure.Release, next))
}

// TestAnAwardToADeadStoreExpires, like the lease of any dead holder.
func TestAnAwardToADeadStoreExpires(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/dead"
	dying := dial(t, c)
	holder, dead, last := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, dying, c.Prefix()), key), open(t, dial(t, c), c.Prefix())
	mine, next := longClaim(key, "holder"), longClaim(key, "dead")
	must(t, holder, mine)
	bids(t, dead, next)
	seeBid(t, holder, key)
	lease := etcdLeaseOf(dead, next.TTL)
	dying.Close()
	must(t, holder, then(tenure.Release, mine))
	if a := resolve(t.Context(), last, longClaim(key, "last")); !errors.Is(a.Err, tenure.ErrHeld) || a.Record.Owner != "dead" {
		t.Fatalf("it was granted to the next: %+v, %v", a.Record, a.Err)
	}
	// As if its time were over.
	if _, err := last.client.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if a := must(t, last, longClaim(key, "last"))[0]; a.Record.Cause != tenure.Expired {
		t.Errorf("it succeeds it as %s", a.Record.Cause)
	}
	resp, err := last.client.Get(t.Context(), last.names.waiter(key, dead.id))
	if err != nil || resp.Count != 0 {
		t.Errorf("it is still the first in the queue: %v, %v", resp, err)
	}
}

// TestAnEventOfAnOlderQueueEntryChangesNothing: the event comes when the store
// is in the queue again.
func TestAnEventOfAnOlderQueueEntryChangesNothing(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/late"
	holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
	must(t, holder, mine)
	bids(t, bidder, next)
	wake := keepWaiting(t, bidder, key)
	bidder.mu.Lock()
	topic, own := bidder.topics[key], bidder.topics[key].bid
	bidder.mu.Unlock()
	bidder.entryChanged(topic, &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{ModRevision: own.mod - 1}})
	bidder.writeLapsed(t.Context(), own.page) // a reserved slot has no deadline
	bidder.mu.Lock()
	queued, kept, noted := topic.queued, topic.bid == own, own.page.written
	bidder.mu.Unlock()
	if !queued || !kept || noted {
		t.Errorf("in the queue: %t, with its bid: %t; the slot is said to be over: %t", queued, kept, noted)
	}
	seeBid(t, holder, key)
	must(t, holder, then(tenure.Release, mine))
	<-wake
	must(t, bidder, next)
}

// TestTheHolderSeesWaitersThatComeLater, before it releases. Nobody waited when
// it was granted the key.
func TestTheHolderSeesWaitersThatComeLater(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/back again"
	holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	holder.queuePolls = slices.Repeat([]time.Duration{10 * time.Millisecond}, int(testenv.Patience/(10*time.Millisecond)))
	mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
	must(t, holder, mine)
	bids(t, bidder, next)
	wake := keepWaiting(t, bidder, key)
	testenv.Eventually(t, "it is seen", func() error {
		holder.mu.Lock()
		defer holder.mu.Unlock()
		if _, m := holder.ownMember(holder.cache.byKey[key].Value.(*cacheEntry).view.stored); m.next[0].bid == nil {
			return errors.New("it is not")
		}
		return nil
	})
	must(t, holder, then(tenure.Release, mine))
	<-wake
	if rec, err := holder.Get(t.Context(), key); err != nil || rec.State != tenure.Held {
		t.Errorf("it is %s, %v", rec.State, err)
	}
	must(t, bidder, next)
}
