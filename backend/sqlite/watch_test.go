package sqlite

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// TestNothingLooksWhileNobodyWaits checks that polling ends with the last
// watch.
func TestNothingLooksWhileNobodyWaits(t *testing.T) {
	t.Parallel()
	st := open(t, filepath.Join(memoryDir(t), "croft.db"), nil)
	defer st.Close()
	looking := func() bool {
		st.watch.mu.Lock()
		defer st.watch.mu.Unlock()
		return st.watch.polling
	}
	if looking() {
		t.Error("it looks before anybody has waited")
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := st.Watch(ctx, "k")
		must(t, err)
		if !looking() {
			t.Error("somebody waits, and nothing looks")
		}
		cancel()
		for range c { // until it is closed
		}
		for end := time.Now().Add(30 * time.Second); looking(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nobody waits any more, and it still looks")
			}
		}
	}
}

// TestARenewalWakesNobody checks that a renewal wakes no waiter of this handle
// or another: they would ask in vain.
func TestARenewalWakesNobody(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st, other := open(t, file, nil), open(t, file, nil)
	defer st.Close()
	defer other.Close()
	held := acquire("k", "ann")
	if a := one(st, held); a.Err != nil {
		t.Fatal(a.Err)
	}
	here, err := st.Watch(t.Context(), "k")
	must(t, err)
	there, err := other.Watch(t.Context(), "k")
	must(t, err)
	elsewhere, err := other.Watch(t.Context(), "j")
	must(t, err)
	for range 20 {
		if a := one(st, then(tenure.Renew, held)); a.Err != nil {
			t.Fatal(a.Err)
		}
		select {
		case <-here:
			t.Fatal("a renewal woke a waiter of its own process")
		case <-there:
			t.Fatal("a renewal woke a waiter of another handle")
		case <-elsewhere:
			t.Fatal("a renewal woke a waiter of another key")
		case <-time.After(pollEvery / 4):
		}
	}
	if a := one(st, then(tenure.Release, held)); a.Err != nil {
		t.Fatal(a.Err)
	}
	for _, c := range []<-chan struct{}{here, there} {
		select {
		case <-c:
		case <-time.After(30 * time.Second):
			t.Fatal("a release woke nobody")
		}
	}
	select {
	case <-elsewhere:
		t.Error("a release woke a waiter of another key")
	case <-time.After(3 * pollEvery):
	}
}

// TestClosingEndsWatches checks that Close closes the channels of watches.
func TestClosingEndsWatches(t *testing.T) {
	t.Parallel()
	st := open(t, filepath.Join(memoryDir(t), "croft.db"), nil)
	c, err := st.Watch(t.Context(), "k")
	must(t, err)
	must(t, st.Close())
	if _, open := <-c; open {
		t.Error("the watch goes on")
	}
}
