package croft

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestTenThousandLeasesAreOneGoroutine: and a few calls renew all of them.
func TestTenThousandLeasesAreOneGoroutine(t *testing.T) {
	inBubble(t, func(r *rig) {
		const many = 10_000
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		before := runtime.NumGoroutine()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				for j := range many / 10 {
					r.acquire(c, fmt.Sprintf("jobs/%d/%d", i, j), &LeaseOptions{TTL: time.Hour})
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if grown := runtime.NumGoroutine() - before; grown > 20 { // others come and go in this process
			r.Errorf("%d leases run %d goroutines, want one", many, grown)
		}
		time.Sleep(time.Hour)
		if requests, calls := tap.count(tenure.Renew); requests < 3*many || calls > 4*many/mostRenewals+4 {
			r.Errorf("in an hour %d renewals in %d calls, want each lease to be renewed about every 20 minutes, all together", requests, calls)
		}
	})
}

// TestASlowStoreKeepsManyLeases: a batch is no larger than the store can answer
// within CallTimeout, and other requests do not wait for all renewals.
func TestASlowStoreKeepsManyLeases(t *testing.T) {
	inBubble(t, func(r *rig) {
		const many = 3000
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		leases := make([]*Lease, many)
		for i := range leases {
			leases[i] = r.acquire(c, fmt.Sprint("jobs/", i), nil)
		}
		tap.forget()
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			select {
			case <-time.After(time.Duration(len(batch)) * 2 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return hang(ctx, batch)
			}
		})
		for requests, _ := tap.count(tenure.Renew); requests == 0; requests, _ = tap.count(tenure.Renew) {
			time.Sleep(10 * time.Millisecond)
		}
		start := time.Now()
		r.acquire(c, "jobs/other", nil)
		wantAfter(r, start, 0, 3*time.Second)
		time.Sleep(3 * time.Minute)
		for _, l := range leases {
			if err := l.Err(); err != nil {
				r.Fatal(err)
			}
		}
		for _, batch := range tap.all() {
			if len(batch) > mostInBatch {
				r.Errorf("%d requests in one call", len(batch))
			}
		}
	})
}

// TestRenewalsFallTogether: leases acquired at different times are soon renewed
// in the same calls.
func TestRenewalsFallTogether(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		const many = 20
		for i := range many {
			r.acquire(c, fmt.Sprint("jobs/", i), &LeaseOptions{TTL: time.Minute})
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Minute)
		tap.forget()
		time.Sleep(5 * time.Minute)
		requests, calls := tap.count(tenure.Renew)
		// A call takes 5 to 20 along, by chance: it depends on the jitter, and
		// on which goroutine draws it. Without company it takes 1.
		if calls > requests/3 {
			r.Errorf("%d renewals of %d leases in %d calls", requests, many, calls)
		}
	})
}

// TestASkippedLeaseIsRenewedAlone: the store answers for a batch except for two
// leases, whose rows were locked.
func TestASkippedLeaseIsRenewedAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			answers := r.st.Apply(ctx, batch)
			for i, req := range batch {
				if strings.HasPrefix(req.Key, "jobs/locked") && len(batch) > 1 {
					answers[i] = store.Answer{Err: store.Unknown(errors.New("skipped: its row is locked"))}
				}
			}
			return answers
		})
		c := r.client(tap, nil)
		locked := []*Lease{r.acquire(c, "jobs/locked1", nil), r.acquire(c, "jobs/locked2", nil)}
		for i := range 5 {
			r.acquire(c, fmt.Sprint("jobs/", i), nil)
		}
		tap.forget()
		time.Sleep(25 * time.Second)
		var alone int
		for _, batch := range tap.all() {
			if len(batch) == 1 && strings.HasPrefix(batch[0].Key, "jobs/locked") {
				alone++
			}
		}
		if alone != 2 {
			r.Errorf("the skipped leases were renewed alone %d times, want each once", alone)
		}
		time.Sleep(10 * time.Minute)
		for _, l := range locked {
			if err := l.Err(); err != nil {
				r.Error(err)
			}
		}
	})
}

// TestAStoreThatIsDownIsAskedInBatches: if nothing is answered, the leases stay
// together.
func TestAStoreThatIsDownIsAskedInBatches(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		const many = 1000
		var leases []*Lease
		for i := range many {
			leases = append(leases, r.acquire(c, fmt.Sprint("jobs/", i), nil))
		}
		tap.forget()
		tap.set(down)
		time.Sleep(30 * time.Second)
		if requests, calls := tap.count(tenure.Renew); calls > 20 || requests < many {
			r.Errorf("%d renewals in %d calls to a store that is down", requests, calls)
		}
		tap.set(nil)
		time.Sleep(20 * time.Second)
		for _, l := range leases {
			if l.Remaining() < 30*time.Second {
				r.Fatalf("a lease was not renewed when the store came back: %s remain", l.Remaining())
			}
		}
	})
}

// TestAnIdleClientRunsNothing: not before its first lease, and not a while
// after its last.
func TestAnIdleClientRunsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: mem.New(nil)}
		// Never closed: if a goroutine were left, the bubble would not end.
		c := New(&tap{Store: r.st}, nil)
		if err := c.Do(t.Context(), "jobs/one", nil, func(context.Context, *Lease) error { return nil }); err != nil {
			r.Fatal(err)
		}
		time.Sleep(2 * maxSleep)
		synctest.Wait()
	})
}

// TestTheRecordIsTheNewestConfirmed: it shows the renewals, and keeps the
// history.
func TestTheRecordIsTheNewestConfirmed(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			answers := r.st.Apply(ctx, batch)
			for i := range answers {
				if batch[i].Verb == tenure.Renew {
					answers[i].Record.History = nil
				}
			}
			return answers
		})
		l := r.acquire(r.client(tap, nil), "jobs/one", nil)
		first := l.Record()
		time.Sleep(30 * time.Second)
		if rec := l.Record(); !rec.Deadline.After(first.Deadline) || len(rec.History) != 1 {
			r.Errorf("deadline %s, after 30s %s; history of %d", first.Deadline, rec.Deadline, len(rec.History))
		}
	})
}

// TestLaw5TheLocalDeadlineIsNeverLaterThanTheStores: at every second of a long
// life with a slow store, in the runtime as well as in the engine.
func TestLaw5TheLocalDeadlineIsNeverLaterThanTheStores(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(slow(3 * time.Second))
		l := r.acquire(r.client(tap, nil), "jobs/one", &LeaseOptions{TTL: 20 * time.Second})
		for range 200 {
			time.Sleep(time.Second)
			store := time.Until(r.record("jobs/one").Deadline)
			if local := l.Remaining(); local > store {
				r.Fatalf("%s remain locally, %s at the store", local, store)
			}
		}
		if err := l.Err(); err != nil {
			r.Error(err)
		}
	})
}
