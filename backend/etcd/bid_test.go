package etcd

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestABidComesBackAsItWas, alone and behind youAreNext. Other values are no
// bids.
func TestABidComesBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-zé]{1,40}`)
		q := tenure.Request{
			Verb: tenure.Acquire, Key: "bid/" + text.Draw(t, "key"), Secret: tenure.NewSecret(), Owner: text.Draw(t, "owner"), Instance: text.Draw(t, "instance"),
			TTL:   time.Duration(rapid.Int64Range(10_000, 3_600_000_000).Draw(t, "ttl")) * time.Microsecond,
			Above: fence.Token(rapid.Int64Range(0, int64(tenure.MaxAbove)).Draw(t, "above")),
			Every: time.Duration(rapid.Int64Range(0, 3600).Draw(t, "every")) * time.Second, HoldFor: time.Duration(rapid.Int64Range(0, 3600).Draw(t, "hold")) * time.Second,
			Guards: rapid.SliceOfN(text, 0, tenure.MaxGuards).Draw(t, "guards"),
		}
		if len(q.Guards) == 0 {
			q.Guards = nil
		}
		b := &bid{Bid: q.Bid(), lease: 7, page: pageID{newIdentity(), 3}, slot: rapid.IntRange(0, pageSize-1).Draw(t, "slot"), mod: 9, since: 5}
		for _, before := range []string{"", youAreNext} {
			value := before + b.encode()
			read := func(store identity, value string) *bid {
				return decodeBid(q.Key, store, &mvccpb.KeyValue{Value: []byte(value), ModRevision: 9, CreateRevision: 5})
			}
			if got := read(b.page.store, value); !reflect.DeepEqual(got, b) {
				t.Fatalf("%+v came back as %+v", b, got)
			}
			if read(b.page.store+1, value) != nil {
				t.Fatal("it is taken for another store's")
			}
			if read(b.page.store, value[:rapid.IntRange(0, len(value)-1).Draw(t, "cut")]) != nil {
				t.Fatal("half of it is taken for a bid")
			}
			if read(b.page.store, value+"\x00") != nil {
				t.Fatal("more than it is taken for a bid")
			}
		}
	})
}

// TestAgesAreUpperBounds: nothing is older than its age. The age of values
// older than all noted calls is unknown.
func TestAgesAreUpperBounds(t *testing.T) {
	var a ages
	if _, known := a.of(5); known {
		t.Error("nothing was seen yet")
	}
	began := time.Now().Add(-time.Hour)
	for n := range 40 {
		a.note(began.Add(time.Duration(n)*time.Minute), int64(10*n))
		// Too soon after the last one, so not noted.
		a.note(began.Add(time.Duration(n)*time.Minute+time.Millisecond), int64(10*n+1))
	}
	a.note(began.Add(40*time.Minute), 5) // overtaken
	for revision, minute := range map[int64]int{391: 39, 390: 38, 385: 38, 381: 38, 380: 37, 1000: 39} {
		age, known := a.of(revision)
		if want := time.Since(began.Add(time.Duration(minute) * time.Minute)); !known || age > want+time.Second || age < want-time.Second {
			t.Errorf("revision %d is said to be %s old, %t; want %s", revision, age, known, want)
		}
	}
	if _, known := a.of(240); known {
		t.Error("all that is remembered came later")
	}
	for i := range a.seen { // the machine was suspended
		a.seen[i].wall = a.seen[i].wall.Add(-24 * time.Hour)
	}
	if age, known := a.of(391); !known || age < 24*time.Hour {
		t.Errorf("after a day it is said to be %s old, %t", age, known)
	}
	a.forget()
	if _, known := a.of(391); known {
		t.Error("all was forgotten")
	}
}

// TestAnOldBidIsOfferedTheKey: a bid is not granted if it is old, or has waited
// for much of its TTL, or if its etcd lease is gone. The key is offered to its
// store, and the first to ask gets it.
func TestAnOldBidIsOfferedTheKey(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]func(t *testing.T, holder, bidder *Store, b *bid){
		"old": func(_ *testing.T, holder, _ *Store, _ *bid) { holder.maxBidAge = 0 },
		// As seen by the holder.
		"half over": func(_ *testing.T, _, _ *Store, b *bid) { b.Request.TTL = tenure.MinTTL },
		"of unknown age": func(_ *testing.T, holder, _ *Store, _ *bid) {
			holder.ages.forget()
		},
		"without a lease": func(t *testing.T, holder, bidder *Store, b *bid) {
			if _, err := holder.client.Revoke(t.Context(), b.lease); err != nil {
				t.Fatal(err)
			}
			bidder.mu.Lock()
			defer bidder.mu.Unlock()
			for _, a := range bidder.etcdLeases {
				if a.id == b.lease {
					bidder.dropLease(a)
				}
			}
		},
		"damaged": func(_ *testing.T, _, _ *Store, b *bid) { b.Request.Owner = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testenv.Etcd(t)
			key := "award/old/" + name
			holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
			mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
			must(t, holder, mine)
			bids(t, bidder, next)
			m := seeBid(t, holder, key)
			age(t, holder, bidder, m.next[0].bid)
			must(t, holder, then(tenure.Release, mine))
			if rec, err := holder.Get(t.Context(), key); err != nil || rec.State != tenure.Free {
				t.Errorf("it is %s, %v", rec.State, err)
			}
			must(t, bidder, next)
		})
	}
}

// TestAStoreGrantsNothingToItself: if the own store is first in the queue, it
// gets an offer.
func TestAStoreGrantsNothingToItself(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/self"
	st := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	mine, next := longClaim(key, "one"), longClaim(key, "other")
	must(t, st, mine)
	bids(t, st, next)
	seeBid(t, st, key)
	must(t, st, then(tenure.Release, mine))
	if rec, err := st.Get(t.Context(), key); err != nil || rec.State != tenure.Free {
		t.Errorf("it is %s of %s, %v", rec.State, rec.Owner, err)
	}
	must(t, st, next)
}

// seeBid lets the holder of a key read its queue until it knows a bid.
func seeBid(t *testing.T, holder *Store, key string) *member {
	t.Helper()
	holder.mu.Lock()
	_, m := holder.ownMember(holder.cache.byKey[key].Value.(*cacheEntry).view.stored)
	holder.mu.Unlock()
	testenv.Eventually(t, "it sees a bid", func() error {
		holder.readQueue(t.Context(), key, m)
		holder.mu.Lock()
		defer holder.mu.Unlock()
		if m.next[0].bid == nil {
			return errors.New("it does not")
		}
		return nil
	})
	return m
}

// TestABidForASecretThatIsUsedUpIsNotGranted, even if that term is so old that
// it is on the shelf. A secret is granted once.
func TestABidForASecretThatIsUsedUpIsNotGranted(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/used"
	holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	for range maxInRecord + 2 {
		used := longClaim(key, "holder")
		must(t, holder, used)
		must(t, holder, then(tenure.Release, used))
	}
	rec, err := holder.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	mine := longClaim(key, "holder")
	must(t, holder, mine)
	bids(t, bidder, longClaim(key, "bidder"))
	m := seeBid(t, holder, key)
	m.next[0].bid.Grant = rec.History[0].Grant
	must(t, holder, then(tenure.Release, mine))
	if rec, err := holder.Get(t.Context(), key); err != nil || rec.State != tenure.Free {
		t.Errorf("it is %s, %v", rec.State, err)
	}
}

// TestAWithdrawnBidIsNotGranted, and nothing is lost by it.
func TestAWithdrawnBidIsNotGranted(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/back"
	client, w := wired(t, c)
	holder, bidder := waitedBefore(t, open(t, client, c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	mine, first, second := longClaim(key, "holder"), longClaim(key, "first"), longClaim(key, "second")
	must(t, holder, mine)
	bids(t, bidder, first)
	seeBid(t, holder, key)
	wake := keepWaiting(t, bidder, key)
	// Another request of the same store.
	if a := resolve(t.Context(), bidder, second); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Fatalf("the key is held: %v", a.Err)
	}
	testenv.Eventually(t, "the first bid is taken back", func() error {
		if in := queueEntry(t, bidder, key); len(in) != 0 {
			return errors.New("it is still there")
		}
		return nil
	})
	if calls, fast := w.inTime(func() { must(t, holder, then(tenure.Release, mine)) }); fast && calls["Txn"] > 2 {
		t.Errorf("the release took %v", calls)
	}
	if rec, err := holder.Get(t.Context(), key); err != nil || rec.State != tenure.Free {
		t.Errorf("it is %s of %s, %v", rec.State, rec.Owner, err)
	}
	<-wake
	must(t, bidder, second)
}

// TestLaw5AnAwardIsNoOlderThanItsBid: a releasing client may read its clock, be
// held up, and see the bid only then.
func TestLaw5AnAwardIsNoOlderThanItsBid(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "award/held up"
	holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
	must(t, holder, mine)
	v, looked := holder.cached(key), holder.now()
	own := bids(t, bidder, next)
	seeBid(t, holder, key)
	end := then(tenure.Release, mine)
	freed, _, err := tenure.Apply(v.stored.rec, end, looked)
	if err != nil {
		t.Fatal(err)
	}
	g := &group{key: key, requests: []tenure.Request{end}, now: looked}
	if rec, b := holder.awardFreed(g, v, freed); b == nil || rec.Deadline.Before(own.sentWall.Add(next.TTL)) {
		t.Errorf("to its holder it ends at %s, and to others at %s", own.sentWall.Add(next.TTL), rec.Deadline)
	}
}
