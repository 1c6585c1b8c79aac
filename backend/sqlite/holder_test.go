package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/tenure"
)

// listened is a store that says when its client has begun to listen.
type listened struct {
	*sqlite.Store
	begun chan struct{}
}

func (l listened) Acts(ctx context.Context) (<-chan string, error) {
	keys, err := l.Store.Acts(ctx)
	l.begun <- struct{}{}
	return keys, err
}

// TestAHolderLearnsOfATakeoverAtOnce checks that the holder need not wait for
// its next renewal.
func TestAHolderLearnsOfATakeoverAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "croft.db")
	client := func(owner string) (*croft.Client, <-chan struct{}) {
		st, err := sqlite.Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := listened{st, make(chan struct{}, 8)}
		c := croft.New(l, &croft.Options{Owner: owner})
		t.Cleanup(func() { _ = c.Close(); _ = st.Close() })
		return c, l.begun
	}
	holder, listens := client("ann")
	operator, _ := client("operator")
	l, err := holder.Acquire(t.Context(), "jobs/one", &croft.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	<-listens
	start := time.Now()
	if _, err := operator.Takeover(t.Context(), "jobs/one", croft.ByHand{Note: "stuck"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Done():
		t.Logf("the holder knew %s after the operator began", time.Since(start))
	case <-time.After(10 * time.Second): // the next renewal is due after 20
		t.Error("the holder was not told")
	}
}

// TestManyHoldersLearnOfActsAtOnce has an operator clear many keys in one
// batch.
func TestManyHoldersLearnOfActsAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "croft.db")
	open := func() *sqlite.Store {
		st, err := sqlite.Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st
	}
	held := listened{open(), make(chan struct{}, 8)}
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
	<-held.begun
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
