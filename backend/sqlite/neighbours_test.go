package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// TestAReleaseSaysThatANeighbourWaits has another store of this process wait on
// the same file. The store's own waiters, and waiters for other keys, do not
// count.
func TestAReleaseSaysThatANeighbourWaits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st, other := open(t, file, nil), open(t, file, nil)
	defer st.Close()
	released := func() (awaited bool) {
		t.Helper()
		req := acquire("k", "ann")
		for _, req := range []tenure.Request{req, then(tenure.Release, req)} {
			a := one(st, req)
			must(t, a.Err)
			awaited = a.Awaited
		}
		return awaited
	}
	_, err := st.Watch(t.Context(), "k")
	must(t, err)
	_, err = other.Watch(t.Context(), "j")
	must(t, err)
	settled := func(n int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			neighbours.mu.RLock()
			got := len(neighbours.on[st.base.file])
			neighbours.mu.RUnlock()
			if got == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d stores with waiters, want %d", got, n)
			}
		}
	}
	settled(2)
	if released() {
		t.Error("nobody else waits for it, and the release says so")
	}
	c, err := other.Watch(t.Context(), "k")
	must(t, err)
	if !released() {
		t.Error("a neighbour waits, and the release does not say so")
	}
	select {
	case <-c: // woken before the release was answered
	default:
		t.Error("the neighbour was not woken at once")
	}
	must(t, other.Close())
	settled(1)
	if released() {
		t.Error("the neighbour has gone")
	}
}
