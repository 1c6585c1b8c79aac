package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// wantNoEarlierEnd checks that a lease ends for others no earlier than its
// holder was promised.
func wantNoEarlierEnd(t *testing.T, other *Store, key string, promised time.Time) {
	t.Helper()
	testenv.Eventually(t, "the key is read", func() error {
		rec, err := other.Get(t.Context(), key)
		if err == nil && rec.Deadline.Before(promised) {
			t.Errorf("%s was promised until %s, and ends at %s", key, promised, rec.Deadline)
		}
		return err
	})
}

// TestLaw4AnOvertakenRenewalTakesNothingBack: two renewals of one lease are
// under way. The first to begin is carried out last.
func TestLaw4AnOvertakenRenewalTakesNothingBack(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st, other := open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine := longClaim("overtaken", "ann")
	must(t, st, mine)
	renew := []tenure.Request{then(tenure.Renew, mine)}
	answers := make([]store.Answer, 1)
	slow := split(renew, answers)
	slow[0].view = st.cached(mine.Key)
	if st.decide(slow[0]); slow[0].next != nil || slow[0].beat == nil {
		t.Fatalf("a renewal takes step %d, and writes the record %v", slow[0].step, slow[0].next)
	}
	promised := must(t, st, renew...)[0].Record.Deadline
	for _, b := range st.batches(st.extendAll(t.Context(), slow)) {
		st.send(t.Context(), b)
	}
	wantNoEarlierEnd(t, other, mine.Key, promised)
}

// TestLaw4ACopyOfAnAcquireLosesNoRenewal: the copy is answered before the
// answer to the acquire itself arrives. Then the lease is renewed.
func TestLaw4ACopyOfAnAcquireLosesNoRenewal(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	beside := longClaim("copy/beside", "ann")
	must(t, st, beside)
	for renewals := range 3 { // before the answer arrives
		mine := longClaim(fmt.Sprintf("copy/mine/%d", renewals), "ann")
		var promised time.Time
		w.beforeAnswer(func() {
			one(t.Context(), st, mine)
			for range renewals {
				promised = must(t, st, then(tenure.Renew, mine))[0].Record.Deadline
			}
		})
		must(t, st, mine)
		last := longClaim(mine.Key+"/last", "ann")
		must(t, st, last)
		must(t, st, then(tenure.Renew, beside), then(tenure.Renew, last))
		wantNoEarlierEnd(t, other, mine.Key, promised)
		promised = must(t, st, then(tenure.Renew, mine))[0].Record.Deadline
		wantNoEarlierEnd(t, other, mine.Key, promised)
	}
}

// TestLaw4AHeartbeatThatIsBackCounts: a neighbour has deleted a heartbeat.
// Another store finds it gone, and is about to take the key. Meanwhile the
// holder's store writes the heartbeat again.
func TestLaw4AHeartbeatThatIsBackCounts(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client := dial(t, c)
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine := longClaim("back/mine", "ann")
	must(t, st, mine)
	testenv.Eventually(t, "the heartbeat is deleted", func() error {
		_, err := client.Delete(t.Context(), st.names.heartbeat(mine.Key))
		return err
	})
	answers := make([]store.Answer, 1)
	slow := split([]tenure.Request{longClaim(mine.Key, "bob")}, answers)
	testenv.Eventually(t, "the heartbeat is found gone", func() error {
		resp, err := other.txn(t.Context(), nil, other.reads(mine.Key), nil)
		if err == nil {
			slow[0].view, err = other.parse(mine.Key, resp.Responses, resp.Header.Revision)
		}
		return err
	})
	if other.decide(slow[0]); slow[0].step != writing {
		t.Fatalf("a claim takes step %d", slow[0].step)
	}
	resumed := then(tenure.Renew, mine)
	resumed.Resume = true
	must(t, st, resumed)
	for _, b := range other.batches(other.extendAll(t.Context(), slow)) {
		other.send(t.Context(), b)
	}
	if slow[0].step == finished && slow[0].answers[0].Err == nil {
		t.Error("the key was granted to another after its lease was renewed")
	}
}

// TestAPlantedQueueEntryUnseatsNobody: the entry of a store that holds the key
// says that the key is free.
func TestAPlantedQueueEntryUnseatsNobody(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	beside, mine := longClaim("entry/beside", "ann"), longClaim("entry/mine", "ann")
	must(t, st, beside, mine)
	newWaiter(t, st, mine.Key, 1)
	queued(t, other, mine.Key, 1)
	promised := must(t, st, then(tenure.Renew, mine))[0].Record.Deadline
	planted := *st.cached(mine.Key).stored
	var err error
	if planted.rec, _, err = tenure.Apply(planted.rec, then(tenure.Release, mine), st.now()); err != nil {
		t.Fatal(err)
	}
	events := w.events.Load()
	if _, err := client.Put(t.Context(), st.names.entry(mine.Key, st.id), planted.encode()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the store hears of it", func() error {
		if w.events.Load() == events {
			return errors.New("no event has come")
		}
		return nil
	})
	for range 3 { // the event may be handled meanwhile
		must(t, st, then(tenure.Renew, beside))
		wantNoEarlierEnd(t, other, mine.Key, promised)
	}
	must(t, st, then(tenure.Renew, mine))
}

// TestALeaseOnAForgottenEtcdLeaseIsRenewed: its store takes the etcd lease to
// be gone while the answer to the acquire is under way. A clock that was set
// forward can cause that.
func TestALeaseOnAForgottenEtcdLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st, other := open(t, client, c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine := longClaim("forgotten", "ann")
	w.beforeAnswer(func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.dropLease(st.etcdLeases[leaseSeconds(mine.TTL)])
	})
	must(t, st, mine)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	a := one(ctx, st, then(tenure.Renew, mine))
	if a.Err != nil {
		t.Fatalf("its renewal: %v", a.Err)
	}
	wantNoEarlierEnd(t, other, mine.Key, a.Record.Deadline)
}

// TestARecordStaysForTheRetentionAfterALongLease: the lease was renewed for
// longer than the retention. Then its process died, and its heartbeat is gone.
func TestARecordStaysForTheRetentionAfterALongLease(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	clock := storetest.NewClock()
	name := newIdentity()
	machine := func() *Store {
		s := open(t, dial(t, c), c.Prefix())
		s.clock, s.domain, s.extraSeconds = clock.Now, name, 3600
		return s
	}
	st, other := machine(), machine()
	mine := claimFor("long/lease", "ann", 10*time.Minute)
	must(t, st, mine)
	for began := clock.Now(); clock.Now().Sub(began) < 2*st.retention; clock.Advance(9 * time.Minute) {
		must(t, st, then(tenure.Renew, mine))
	}
	ended := must(t, st, then(tenure.Renew, mine))[0].Record.Deadline
	testenv.Eventually(t, "the etcd lease is gone", func() error {
		_, err := st.client.Revoke(t.Context(), etcdLeaseOf(st, mine.TTL))
		return err
	})
	sweep := func(want int) {
		t.Helper()
		testenv.Eventually(t, "a sweep is done", func() error {
			n, err := other.Sweep(t.Context())
			if err == nil && n != want {
				t.Errorf("%s after the lease it drops %d records, want %d", clock.Now().Sub(ended), n, want)
			}
			return err
		})
	}
	sweep(0)
	clock.Advance(ended.Sub(clock.Now()) + st.retention - time.Minute)
	sweep(0)
	rec, err := other.Get(t.Context(), mine.Key)
	if err != nil || ended.Sub(rec.Deadline) > st.notedFor() {
		t.Errorf("it ended at %s, and is said to have ended at %s, %v", ended, rec.Deadline, err)
	}
	clock.Advance(2 * st.notedFor())
	sweep(1)
}
