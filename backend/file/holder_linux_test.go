package file_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/dir"
)

// listened is a store that reports when its client has begun to listen.
type listened struct {
	*dir.Store
	begun chan struct{}
}

func (l listened) Acts(ctx context.Context) (<-chan string, error) {
	keys, err := l.Store.Acts(ctx)
	l.begun <- struct{}{}
	return keys, err
}

// TestAHolderLearnsOfATakeoverAtOnce: and not only by its next renewal.
func TestAHolderLearnsOfATakeoverAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	client := func(owner string) (*croft.Client, <-chan struct{}) {
		st, err := dir.Open(path, nil)
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
