package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAnAnswerThatWasOvertakenIsNotTaken: etcd answers that this store holds a
// key, and the answer is slow. Meanwhile the store has released the key.
func TestAnAnswerThatWasOvertakenIsNotTaken(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	mine := longClaim("stale/given back", "ann")
	must(t, st, mine)
	v := st.cached(mine.Key)
	var read []*etcdserverpb.ResponseOp
	for _, op := range st.reads(mine.Key) {
		got, err := st.client.Get(t.Context(), string(op.KeyBytes()), clientv3.WithRev(v.mod))
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{Kvs: got.Kvs}}})
	}
	must(t, st, then(tenure.Release, mine))
	g := &group{key: mine.Key, requests: []tenure.Request{mine}, answers: make([]store.Answer, 1), step: looking}
	st.takeAnswer(g, v.mod, &etcdserverpb.TxnResponse{Responses: read})
	if st.decide(g); g.step == finished && g.answers[0].Err == nil && st.ensureHeld(t.Context(), g) == nil {
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
	st.remember(mine.Key, &later)
	st.mu.Unlock()
	must(t, st, then(tenure.Release, mine))
}
