package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/sqlite"
)

// listened is a store that says when its client has begun to listen.
type listened struct {
	*sqlite.Store
	begun chan struct{}
}

func (l listened) Acts(ctx context.Context) (<-chan string, error) {
	defer close(l.begun)
	return l.Store.Acts(ctx)
}

// TestAHolderLearnsOfATakeoverAtOnce, and not by its next renewal.
func TestAHolderLearnsOfATakeoverAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "croft.db")
	client := func(owner string) (*croft.Client, <-chan struct{}) {
		st, err := sqlite.Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := listened{st, make(chan struct{})}
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
