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
// law says, wherever they are kept. None is granted again. A store that has
// never seen the key knows as much.
func TestOldTransfersStayKnown(t *testing.T) {
	t.Parallel()
	const key = "shelf/known"
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

// TestRecordsStaySmall: the size of a write does not grow with the number of
// earlier terms.
func TestRecordsStaySmall(t *testing.T) {
	t.Parallel()
	const key = "shelf/small"
	most := func(terms int) (most int) {
		st, _, _ := longHistory(t, key, terms)
		resp, err := st.client.Get(t.Context(), st.names.record(key))
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("%v", err)
		}
		return len(resp.Kvs[0].Value)
	}
	if few, many := most(maxInRecord), most(3*maxInRecord); many > few+32 {
		t.Errorf("a record is %d bytes after %d terms and %d after %d", few, maxInRecord, many, 3*maxInRecord)
	}
}

// TestADamagedShelfIsNamed, and nothing is decided on it.
func TestADamagedShelfIsNamed(t *testing.T) {
	t.Parallel()
	const key = "shelf/damaged"
	for name, damage := range map[string]func(st *Store) error{
		"lost": func(st *Store) error {
			_, err := st.client.Delete(t.Context(), st.names.shelf(key))
			return err
		},
		"nonsense": func(st *Store) error {
			_, err := st.client.Put(t.Context(), st.names.shelf(key), "nonsense")
			return err
		},
		"of another time": func(st *Store) error {
			resp, err := st.client.Get(t.Context(), st.names.shelf(key))
			if err != nil {
				return err
			}
			d := &storedRecord{shelved: 1}
			r := &reader{rest: resp.Kvs[0].Value[1:]}
			d.rec.History = r.terms()[:maxInRecord+1]
			_, err = st.client.Put(t.Context(), st.names.shelf(key), d.shelve())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, _, tokens := longHistory(t, key, 3*maxInRecord)
			if err := damage(st); err != nil {
				t.Fatal(err)
			}
			expectDamaged(t, st, claim(key, "bob"))
			if _, err := st.Get(t.Context(), key); !errors.Is(err, ErrDamaged) {
				t.Errorf("reading it: %v", err)
			}
			for rec, err := range st.List(t.Context(), "shelf/") { // needs no history
				if err != nil || rec.Token != tokens[len(tokens)-1] {
					t.Errorf("listed as %+v, %v", rec, err)
				}
			}
		})
	}
}

// TestAShelfOutlivesItsRecordByASweep: after a record is deleted by hand, a
// sweep drops its shelf. Until then nobody takes the shelf for that of the
// key's next record.
func TestAShelfOutlivesItsRecordByASweep(t *testing.T) {
	t.Parallel()
	const key, other = "shelf/loose", "shelf/kept"
	st, claims, _ := longHistory(t, key, maxInRecord+3)
	for range maxInRecord + 1 {
		take := claim(other, "ann")
		must(t, st, take)
		must(t, st, then(tenure.Release, take))
	}
	count := func(name string) int64 {
		t.Helper()
		resp, err := st.client.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	forget := func() {
		t.Helper()
		if _, err := st.client.Delete(t.Context(), st.names.record(key)); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func() {
		t.Helper()
		testenv.Eventually(t, "it has swept", func() error {
			n, err := st.Sweep(t.Context())
			if n != 0 {
				t.Errorf("%d records were dropped", n)
			}
			return err
		})
	}
	must(t, st, then(tenure.Release, claims[1])) // the store knows the shelf
	forget()
	again := claim(key, "bob")
	must(t, st, again)
	must(t, st, then(tenure.Release, again))
	if rec, err := st.Get(t.Context(), key); err != nil || len(rec.History) != 1 || rec.Terms != 1 {
		t.Errorf("born again, it remembers %d transfers, %v", len(rec.History), err)
	}
	sweep()
	if count(st.names.shelf(key)) != 1 {
		t.Error("a shelf was dropped whose key has a record")
	}
	forget()
	sweep()
	if count(st.names.shelf(key)) != 0 || count(st.names.shelf(other)) != 1 {
		t.Errorf("of the shelf without a record %d is left, of the other %d", count(st.names.shelf(key)), count(st.names.shelf(other)))
	}
}
