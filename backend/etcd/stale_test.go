package etcd

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAnAnswerThatWasOvertakenIsNotTaken: etcd has answered that a key is this store's, by its bid, and that is long on its way. Meanwhile the store has given the key back.
func TestAnAnswerThatWasOvertakenIsNotTaken(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "stale/given back"
	holder, heir := acquainted(t, open(t, dial(t, c), c.Prefix()), key), acquainted(t, open(t, dial(t, c), c.Prefix()), key)
	mine, next := lasting(key, "holder"), lasting(key, "heir")
	must(t, holder, mine)
	bids(t, heir, next)
	looksRound(t, holder, key)
	must(t, holder, then(tenure.Release, mine))
	v := holder.known(key)
	if v.deed.rec.Owner != "heir" {
		t.Fatalf("it is %s of %s", v.deed.rec.State, v.deed.rec.Owner)
	}
	seen := look{key: key, live: v.deed.lease, page: v.deed.page}
	var read []*etcdserverpb.ResponseOp
	for _, op := range seen.ops(heir.names) {
		got, err := heir.client.Get(t.Context(), string(op.KeyBytes()), clientv3.WithRev(v.mod))
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{Kvs: got.Kvs}}})
	}
	testenv.Eventually(t, "it is given back, and the heir knows", func() error {
		if known := heir.known(key); known == nil || known.deed.rec.State != tenure.Free {
			return errors.New("it is not")
		}
		return nil
	})

	l := &lane{key: key, requests: []tenure.Request{next}, answers: make([]store.Answer, 1), step: looking, look: seen}
	heir.take(l, v.mod, &etcdserverpb.TxnResponse{Responses: read})
	if heir.decide(l); l.step == finished && l.answers[0].Err == nil && heir.assure(t.Context(), l) == nil {
		t.Errorf("it is answered as held: %+v", l.answers[0].Record)
	}
}

// TestWhatIsRememberedOfALaterStateIsForgotten: etcd was set back, and an answer from before came to be remembered after that had been noticed.
func TestWhatIsRememberedOfALaterStateIsForgotten(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	mine := lasting("stale/later", "ann")
	must(t, st, mine)
	later := *st.known(mine.Key)
	later.mod, later.asOf = 1<<40, 1<<40
	st.mu.Lock()
	st.remember(mine.Key, &later)
	st.mu.Unlock()
	must(t, st, then(tenure.Release, mine))
}
