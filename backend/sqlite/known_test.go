package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft/tenure"
)

// TestChangesByOthersAreSeen checks that a store forgets the records of
// its last transaction when another connection has written.
func TestChangesByOthersAreSeen(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st, other := open(t, file, nil), open(t, file, nil)
	defer st.Close()
	defer other.Close()
	mine := acquire("k", "ann")
	must(t, one(st, mine).Err)
	must(t, one(st, then(tenure.Renew, mine)).Err)
	execute(t, file, "DELETE FROM croft_lease")
	if a := one(st, then(tenure.Renew, mine)); !errors.Is(a.Err, tenure.ErrNotOwned) {
		t.Errorf("renewing what was deleted: %v", a.Err)
	}
	theirs := acquire("k", "bob")
	must(t, one(other, theirs).Err)
	if a := one(st, acquire("k", "ann")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("taking what another has: %v", a.Err)
	}
	must(t, one(other, then(tenure.Release, theirs)).Err)
	must(t, one(st, acquire("k", "ann")).Err)
	if a := one(other, acquire("k", "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("the other, of what has been taken since: %v", a.Err)
	}
}

// TestAnAnsweredRecordIsTheCallers checks that a caller may change a record
// that it got, without changing the store's own.
func TestAnAnsweredRecordIsTheCallers(t *testing.T) {
	t.Parallel()
	st := open(t, filepath.Join(memoryDir(t), "croft.db"), nil)
	defer st.Close()
	old := acquire("k", "ann")
	must(t, one(st, old).Err)
	must(t, one(st, then(tenure.Release, old)).Err)
	req := acquire("k", "ann")
	req.Guards = []string{"file:///a"}
	a := one(st, req)
	must(t, a.Err)
	req.Guards[0], a.Record.Guards[0] = "spoilt", "spoilt"
	var held *tenure.HeldError
	if errors.As(one(st, acquire("k", "bob")).Err, &held) {
		held.Record.Guards[0] = "spoilt"
	}
	var lost *tenure.NotOwnedError
	if errors.As(one(st, then(tenure.Renew, old)).Err, &lost) {
		lost.Record.Guards[0] = "spoilt"
	}
	if held == nil || lost == nil {
		t.Fatal("neither is as it should be refused")
	}
	if a := one(st, then(tenure.Renew, req)); a.Err != nil || a.Record.Guards[0] != "file:///a" {
		t.Errorf("its guards are now %q, %v", a.Record.Guards, a.Err)
	}
}

// TestALargeBatchIsNotKept checks that the store frees the memory of a large
// batch with the next transaction.
func TestALargeBatchIsNotKept(t *testing.T) {
	t.Parallel()
	st := open(t, filepath.Join(memoryDir(t), "croft.db"), &Options{SweepEvery: -1})
	defer st.Close()
	batch := make([]tenure.Request, 2*mostKnown)
	for i := range batch {
		batch[i] = acquire(fmt.Sprintf("k/%d", i), "ann")
	}
	for range 2 { // insert them, then update them
		for _, a := range st.Apply(t.Context(), batch) {
			must(t, a.Err)
		}
		for i := range batch {
			batch[i].Verb = tenure.Release
		}
	}
	must(t, one(st, acquire("small", "ann")).Err)
	must(t, st.do(t.Context(), 1, func(x *transaction) {
		if len(x.seen) > mostKnown || cap(x.dirty) > mostKnown || cap(x.passed) > mostKnown {
			t.Errorf("%d records are still known, with room for %d and %d that have changed", len(x.seen), cap(x.dirty), cap(x.passed))
		}
	}))
}
