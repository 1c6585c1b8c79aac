package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// readOnlyStore refuses every change, and counts the other calls.
type readOnlyStore struct {
	*mem.Store
	calls int
}

func (s *readOnlyStore) Apply(_ context.Context, batch []tenure.Request) []store.Answer {
	s.calls += 1000
	return store.Failed(len(batch), fmt.Errorf("this store is only for reading"))
}

func (s *readOnlyStore) Get(ctx context.Context, key string) (tenure.Record, error) {
	s.calls++
	return s.Store.Get(ctx, key)
}

func (s *readOnlyStore) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	s.calls++
	return s.Store.List(ctx, prefix)
}

func (s *readOnlyStore) Now(ctx context.Context) (time.Time, error) {
	s.calls++
	return s.Store.Now(ctx)
}

// leasesAt makes a store with n leases of a minute, taken one millisecond after
// the other, and returns a status of it at a time after the first grant.
func leasesAt(t *testing.T, n int, after time.Duration) (*status, *readOnlyStore) {
	t.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	start := now
	st := mem.New(&mem.Options{Now: func() time.Time { return now }})
	t.Cleanup(func() { _ = st.Close() })
	for i := range n {
		a := st.Apply(t.Context(), []tenure.Request{{
			Verb: tenure.Acquire, Key: fmt.Sprintf("jobs/%04d", i), Secret: tenure.NewSecret(), Owner: "ann",
			TTL: time.Minute,
		}})[0]
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		now = now.Add(time.Millisecond)
	}
	now = start.Add(after)
	reader := &readOnlyStore{Store: st}
	a := &app{&cli.App{Stdout: &cli.Sink{W: io.Discard}, Stderr: io.Discard, Timeout: time.Minute}}
	s, err := a.statusOf(t.Context(), reader, nil, statusOptions{stallAfter: time.Minute, limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	return s, reader
}

// TestStatusReadsOnlyAndCallsTheStoreNoOftenerForManyKeys: the output stays
// small, too.
func TestStatusReadsOnlyAndCallsTheStoreNoOftenerForManyKeys(t *testing.T) {
	_, few := leasesAt(t, 1, 30*time.Second)
	s, many := leasesAt(t, 2000, 30*time.Second)
	if few.calls != many.calls || many.calls > 10 {
		t.Errorf("%d calls for one key, %d for 2000", few.calls, many.calls)
	}
	v := s.view()
	if v.Held.Count != 2000 || len(v.Held.Keys) != 5 || !v.Well {
		t.Errorf("held: %d, of which %d are shown, well is %v", v.Held.Count, len(v.Held.Keys), v.Well)
	}
}

// TestALeaseLapsesWithLessThanAThirdLeft: the first ones to end are shown.
func TestALeaseLapsesWithLessThanAThirdLeft(t *testing.T) {
	s, _ := leasesAt(t, 100, 40*time.Second+9*time.Millisecond+500*time.Microsecond)
	first := s.lapsing.First()
	if s.lapsing.Count != 10 || s.expired != 0 || s.well() || len(first) != 5 || first[0].Key != "jobs/0000" {
		t.Errorf("%d of 100 are lapsing, %d have expired, first %v", s.lapsing.Count, s.expired, first)
	}
	s, _ = leasesAt(t, 100, 60*time.Second+9*time.Millisecond+500*time.Microsecond)
	first = s.lapsing.First()
	if s.lapsing.Count != 100 || s.expired != 10 || s.held.Count != 90 || first[0].Key != "jobs/0009" {
		t.Errorf("%d of 100 are lapsing, %d have expired, first %v", s.lapsing.Count, s.expired, first)
	}
}

// TestNoScreenShowsAPastTimeAsAFutureOne: the clock of an object store has
// whole seconds, and so lags behind the times in its records.
func TestNoScreenShowsAPastTimeAsAFutureOne(t *testing.T) {
	s, _ := leasesAt(t, 1, -1500*time.Millisecond)
	ahead := s.now.Add(1500 * time.Millisecond)
	s.refused = []refusals.Refusal{{At: ahead, Key: "jobs/0000", Owner: "bob", Act: "renew", Count: 1}}
	var out strings.Builder
	a := &app{&cli.App{Stdout: &cli.Sink{W: &out}, Stderr: io.Discard}}
	a.printStatus(s, statusOptions{})
	a.listRefusals(s.refused, s.now, "")
	a.printKnown(&knownView{now: s.now, Owner: "ann", Since: cli.When(ahead)}, fence.Mark{})
	if text := out.String(); strings.Contains(text, "in 1") || !strings.Contains(text, "1m left of 1m") {
		t.Errorf("a time lies ahead, or a lease has more left than its TTL:\n%s", text)
	}
}
