package etcd

import (
	"errors"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// longHistory makes a key with many terms, of two stores in turn.
func longHistory(t *testing.T, key string, terms int) (st *Store, claims []tenure.Request, tokens []fence.Token) {
	t.Helper()
	c := testenv.Etcd(t)
	client := dial(t, c)
	stores := []*Store{open(t, client, c.Prefix()), open(t, client, c.Prefix())}
	for n := range terms {
		st := stores[n/3%2]
		take := claim(key, "ann")
		answers := must(t, st, take)
		must(t, st, then(tenure.Release, take))
		claims, tokens = append(claims, take), append(tokens, answers[0].Record.Token)
	}
	return open(t, client, c.Prefix()), claims, tokens
}

// TestOldTransfersStayKnown (law 1): a record remembers as many terms as the
// law says. None is granted again. A store that has
// never seen the key knows as much.
func TestOldTransfersStayKnown(t *testing.T) {
	t.Parallel()
	const key = "history/known"
	st, claims, tokens := longHistory(t, key, tenure.HistoryLen+5)
	for n := 5; n < len(claims); n++ {
		var refused *tenure.NotOwnedError
		if a := resolve(t.Context(), st, claims[n]); !errors.As(a.Err, &refused) || refused.Why != tenure.WhyReleased || len(refused.Record.History) != tenure.HistoryLen {
			t.Fatalf("a late copy of request %d of %d: %v", n, len(claims), a.Err)
		}
		must(t, st, then(tenure.Release, claims[n])) // it was released by its owner
	}
	rec, err := st.Get(t.Context(), key)
	if err != nil || len(rec.History) != tenure.HistoryLen {
		t.Fatalf("%d transfers are remembered, %v", len(rec.History), err)
	}
	for i, term := range rec.History {
		if term.Token != tokens[i+5] {
			t.Errorf("transfer %d has the token %d, and had %d", i, term.Token, tokens[i+5])
		}
	}
	if err := rec.Check(); err != nil {
		t.Error(err)
	}
}

// TestRecordsStaySmall: a record with all the history that it can have.
func TestRecordsStaySmall(t *testing.T) {
	t.Parallel()
	st, _, _ := longHistory(t, "history/small", tenure.HistoryLen+2)
	resp, err := st.client.Get(t.Context(), st.names.record("history/small"))
	if err != nil || len(resp.Kvs) != 1 || len(resp.Kvs[0].Value) > 2048 {
		t.Errorf("%v, %v", resp, err)
	}
}
