package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// long is a TTL that does not end while a check runs, unless the clock is
	// advanced.
	long = time.Hour
	// brief is a TTL that a check can wait for. No check may rely on a brief
	// lease being still alive.
	brief = 30 * time.Millisecond
)

// trial is one check that runs on one place.
type trial struct {
	testing.TB
	Harness
	// store is the first handle on the place.
	store   store.Store
	options Options
	opened  []store.Store
	// ctx ends when the store has answered nothing for so long that it must
	// hang.
	ctx context.Context
	// alive notes that the store has answered.
	alive func()
	rand  *rand.Rand
}

func newTrial(tb testing.TB, h Harness) *trial {
	tb.Helper()
	if h.Open == nil || h.Wipe == nil {
		tb.Fatalf("storetest: the harness lacks Open or Wipe; both are required")
	}
	hangs := 10 * h.Patience
	if h.Patience <= 0 {
		h.Patience = 30 * time.Second
		// A batch of many requests is one answer, and a busy machine is slow.
		// go test gives up after 10 minutes, and says less.
		hangs = 5 * time.Minute
	}
	ctx, alive := suite.Watch(tb, hangs)
	t := &trial{TB: tb, Harness: h, ctx: ctx, alive: alive, rand: suite.Random(tb, "STORETEST_SEED")}
	tb.Cleanup(func() { t.close() })
	t.store = t.open()
	return t
}

// open opens one more handle on the place.
func (t *trial) open() store.Store {
	t.Helper()
	st := t.Open(t.TB, t.options)
	t.opened = append(t.opened, st)
	return st
}

// close closes every handle.
func (t *trial) close() {
	t.Helper()
	for _, st := range t.opened {
		if err := st.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	t.opened = nil
}

// reopen closes every handle and opens the first again.
func (t *trial) reopen() {
	t.Helper()
	t.close()
	t.store = t.open()
}

// handles opens n handles, the trial's own among them.
func (t *trial) handles(n int) []store.Store {
	t.Helper()
	all := []store.Store{t.store}
	for len(all) < n {
		all = append(all, t.open())
	}
	return all
}

// many returns how often to repeat something: full, or fewer times on a slow
// store or in a short test.
func (t *trial) many(full, slow, short int) int {
	n := full
	if t.Slow {
		n = min(n, slow)
	}
	if testing.Short() {
		n = min(n, short)
	}
	if t.MaxKeys > 0 {
		n = min(n, t.MaxKeys)
	}
	return n
}

// apply sends requests and makes sure that each has exactly one answer.
func (t *trial) apply(st store.Store, requests ...tenure.Request) []store.Answer {
	t.Helper()
	answers := st.Apply(t.ctx, requests)
	t.alive()
	if len(answers) != len(requests) {
		t.Fatalf("%d requests got %d answers; every request gets exactly one, in order", len(requests), len(answers))
	}
	return answers
}

// get reads a record.
func (t *trial) get(st store.Store, key string) tenure.Record {
	t.Helper()
	rec, err := st.Get(t.ctx, key)
	if err != nil {
		t.Fatalf("Get(%q): %v", key, err)
	}
	t.alive()
	return rec
}

// list reads the records under a prefix.
func (t *trial) list(st store.Store, prefix string) []tenure.Record {
	t.Helper()
	var records []tenure.Record
	for rec, err := range st.List(t.ctx, prefix) {
		if err != nil {
			t.Fatalf("List(%q): %v", prefix, err)
		}
		t.alive()
		records = append(records, rec)
	}
	return records
}

// now reads the store's clock.
func (t *trial) now() time.Time {
	t.Helper()
	now, err := t.store.Now(t.ctx)
	if err != nil {
		t.Fatalf("Now: %v", err)
	}
	return now
}

// pass lets the store's clock reach a moment. It advances the clock if it can,
// and otherwise waits.
func (t *trial) pass(until time.Time) {
	t.Helper()
	suite.Pass(t.ctx, t, until, t.now, t.Advance)
}

// expiring makes a request for a lease that the check lets expire. The lease is
// brief if the check must wait for that. Then the check may not rely on it
// being still alive.
func (t *trial) expiring(req tenure.Request) tenure.Request {
	if t.Advance == nil {
		return briefly(req)
	}
	return req
}

// expire lets a key's lease or reservation end by its deadline, and does
// nothing else to it.
func (t *trial) expire(key string) {
	t.Helper()
	t.pass(t.get(t.store, key).Deadline)
}

// resolve sends a request until its outcome is known. It is for goroutines that
// contend. If the store never answers, it reports an error and returns the last
// answer.
func (t *trial) resolve(st store.Store, req tenure.Request) store.Answer {
	a := Resolve(t.ctx, st, req)
	if errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("%s of %q is still unknown when the check's time is over: %v", req.Verb, req.Key, a.Err)
		return a
	}
	t.alive()
	return a
}
