package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/internal/test/operator"
	"github.com/croft-dev/croft/tenure"
)

// opener returns a function that opens handles on one new file.
func opener(t *testing.T) func() *sqlite.Store {
	path := filepath.Join(t.TempDir(), "croft.db")
	return func() *sqlite.Store {
		st, err := sqlite.Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st
	}
}

// TestAHolderLearnsOfATakeoverAtOnce checks that the holder need not wait for
// its next renewal.
func TestAHolderLearnsOfATakeoverAtOnce(t *testing.T) {
	t.Parallel()
	open := opener(t)
	operator.TakesOverAtOnce(t, open(), open())
}

// TestManyHoldersLearnOfActsAtOnce has an operator clear many keys in one
// batch.
func TestManyHoldersLearnOfActsAtOnce(t *testing.T) {
	t.Parallel()
	open := opener(t)
	held, begun := operator.Listened(open())
	holder := croft.New(held, &croft.Options{Owner: "ann"})
	t.Cleanup(func() { _ = holder.Close() })
	var leases []*croft.Lease
	var acts []tenure.Request
	for i := range 500 {
		key := fmt.Sprintf("jobs/%d", i)
		l, err := holder.Acquire(t.Context(), key, &croft.LeaseOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
		acts = append(acts, tenure.Request{
			Verb: tenure.Revoke, Key: key, Secret: tenure.NewSecret(), Actor: "operator", Note: "a test",
		})
	}
	<-begun
	for _, a := range open().Apply(t.Context(), acts) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	late := time.After(10 * time.Second) // the next renewals are due after minutes
	for i, l := range leases {
		select {
		case <-l.Done():
		case <-late:
			untold := 0
			for _, l := range leases[i:] {
				if l.Context().Err() == nil {
					untold++
				}
			}
			t.Fatalf("%d of %d holders were not told", untold, len(leases))
		}
	}
}
