package etcd

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAnAnswerThatWasOvertakenIsNotTaken: etcd answers that this store holds a
// key by its bid, and the answer is slow. Meanwhile the store has returned the
// key.
func TestAnAnswerThatWasOvertakenIsNotTaken(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "stale/given back"
	holder, bidder := waitedBefore(t, open(t, dial(t, c), c.Prefix()), key), waitedBefore(t, open(t, dial(t, c), c.Prefix()), key)
	mine, next := longClaim(key, "holder"), longClaim(key, "bidder")
	must(t, holder, mine)
	bids(t, bidder, next)
	seeBid(t, holder, key)
	must(t, holder, then(tenure.Release, mine))
	v := holder.cached(key)
	if v.stored.rec.Owner != "bidder" {
		t.Fatalf("it is %s of %s", v.stored.rec.State, v.stored.rec.Owner)
	}
	seen := lookup{key: key, live: v.stored.lease, page: v.stored.page}
	var read []*etcdserverpb.ResponseOp
	for _, op := range seen.ops(bidder.names) {
		got, err := bidder.client.Get(t.Context(), string(op.KeyBytes()), clientv3.WithRev(v.mod))
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{Kvs: got.Kvs}}})
	}
	testenv.Eventually(t, "it is given back, and the bidder knows", func() error {
		if known := bidder.cached(key); known == nil || known.stored.rec.State != tenure.Free {
			return errors.New("it is not")
		}
		return nil
	})

	g := &group{key: key, requests: []tenure.Request{next}, answers: make([]store.Answer, 1), step: looking, lookup: seen}
	bidder.takeAnswer(g, v.mod, &etcdserverpb.TxnResponse{Responses: read})
	if bidder.decide(g); g.step == finished && g.answers[0].Err == nil && bidder.ensureHeld(t.Context(), g) == nil {
		t.Errorf("it is answered as held: %+v", g.answers[0].Record)
	}
}

// TestAViewCachedAfterARestoreIsReplaced: the view is from before the restore,
// but was cached after the store had noticed the restore.
func TestAViewCachedAfterARestoreIsReplaced(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	mine := longClaim("stale/later", "ann")
	must(t, st, mine)
	later := *st.cached(mine.Key)
	later.mod, later.asOf = 1<<40, 1<<40
	st.mu.Lock()
	st.addView(mine.Key, &later)
	st.mu.Unlock()
	must(t, st, then(tenure.Release, mine))
}
