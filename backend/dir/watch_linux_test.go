package dir

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// woken waits for a wake-up. A second one may be pending after it.
func woken(tb testing.TB, c <-chan struct{}, by string) {
	tb.Helper()
	select {
	case _, open := <-c:
		if !open {
			tb.Fatalf("the watch broke at %s", by)
		}
	case <-time.After(30 * time.Second):
		tb.Fatalf("%s woke nobody", by)
	}
}

func watch(tb testing.TB, st *Store, key string) <-chan struct{} {
	tb.Helper()
	c, err := st.Watch(tb.Context(), key)
	if err != nil {
		tb.Fatalf("Watch: %v", err)
	}
	return c
}

// drain takes the pending wake-ups.
func drain(c <-chan struct{}) {
	for {
		select {
		case <-c:
		default:
			return
		}
	}
}

// TestEveryChangeWakesThroughAllLives: a waiter is woken from before the key
// exists, through its life, its end, a wipe and its next life. Each change
// follows the wake-up by the one before. If the watcher did not watch the right
// folder by then, the waiter would sleep for ever.
func TestEveryChangeWakesThroughAllLives(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	other := p.another(nil)
	c := watch(t, other, "k")
	req := acquire("k", "ann")
	steps := []struct {
		name string
		do   func()
	}{
		{"the first acquire", func() { p.must(req) }},
		{"a renewal", func() { p.must(then(tenure.Renew, req)) }},
		{"a release", func() { p.must(then(tenure.Release, req)) }},
		{"a drop", func() {
			p.clock.Advance(2 * retention)
			if n, err := p.Sweep(t.Context()); n < 1 || err != nil {
				t.Fatalf("a sweep drops %d, %v", n, err)
			}
		}},
		{"the next life", func() { req = acquire("k", "bob"); p.must(req) }},
		{"a wipe", func() { wipe(t, p.root) }},
		{"a life after the wipe", func() { p.clock.Advance(time.Second); req = acquire("k", "cleo"); p.must(req) }},
		{"its release", func() { p.must(then(tenure.Release, req)) }},
	}
	for _, step := range steps {
		step.do()
		// One change may cause several events. The last must not be taken for
		// the next change.
		woken(t, c, step.name)
		settle(t, other)
		drain(c)
	}
}

// settle returns when the watcher has handled all events so far. Events come in
// order, so it makes one more and waits for it.
func settle(tb testing.TB, st *Store) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	key := fmt.Sprintf("settle/%d", time.Now().UnixNano())
	c, err := st.Watch(ctx, key)
	if err != nil {
		tb.Fatal(err)
	}
	if a := one(st, acquire(key, "ann")); a.Err != nil {
		tb.Fatal(a.Err)
	}
	woken(tb, c, "another key")
}

// TestWaitersOfOtherKeysSleepOn: a change of a key wakes only that key's
// waiters, however many share the folders above.
func TestWaitersOfOtherKeysSleepOn(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	for i := range 10 {
		p.must(acquire(fmt.Sprintf("there/%d", i), "ann"))
	}
	// With the shard made, only folders of keys come and go where its waiter
	// looks.
	if err := p.reg.makeShard(hashOf("absent")); err != nil {
		t.Fatal(err)
	}
	here, absent := watch(t, p.Store, "there/7"), watch(t, p.Store, "absent")
	two := watch(t, p.Store, "there/8")
	for i := range 300 {
		p.must(acquire(fmt.Sprintf("others/%d", i), "ann"))
	}
	p.must(takeover("there/8"))
	woken(t, two, "a takeover")
	select {
	case <-here:
		t.Error("the waiter of a key that did not change was woken")
	case <-absent:
		t.Error("the waiter of a key that does not exist was woken by others")
	default:
	}
}

// TestNothingIsWatchedWhileNobodyWaits: the kernel limits each user's watches.
func TestNothingIsWatchedWhileNobodyWaits(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	w := p.reg.watcher
	watched := func() (keys, folders int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.keys), len(w.at)
	}
	p.must(acquire("there", "ann"))
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		for _, key := range []string{"there", "there", "absent"} {
			_, err := p.Watch(ctx, key)
			must(t, err)
		}
		_, err := p.Acts(ctx)
		must(t, err)
		if keys, folders := watched(); keys != 3 || folders != 3 {
			t.Errorf("%d folders are watched for %d keys", folders, keys)
		}
		cancel()
		testenv.Eventually(t, "the end of watching", func() error {
			if keys, folders := watched(); keys > 0 || folders > 0 {
				return fmt.Errorf("%d folders are watched for %d keys", folders, keys)
			}
			return nil
		})
	}
}

// TestClosingEndsWatches: and a waiter may watch again after its watch has
// ended.
func TestClosingEndsWatches(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	st := p.another(nil)
	ctx, cancel := context.WithCancel(t.Context())
	first, err := st.Watch(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	second := watch(t, st, "k")
	cancel()
	if _, open := <-first; open {
		t.Error("a watch did not end with its context")
	}
	p.must(acquire("k", "ann"))
	woken(t, second, "an acquire")
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for range second { // until it is closed
	}
	if _, err := st.Watch(t.Context(), "k"); err == nil {
		t.Error("a closed store watches")
	}
}
