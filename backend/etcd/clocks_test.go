package etcd

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// twoMachines makes two stores on two machines. The first clock is ahead by
// what the test says.
func twoMachines(t *testing.T) (holder, other *Store, ahead *atomic.Int64, c *testenv.EtcdCluster) {
	t.Helper()
	c = testenv.Etcd(t)
	holder, other = otherMachine(t, c, 0), otherMachine(t, c, 0)
	ahead = &atomic.Int64{}
	holder.clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	return holder, other, ahead, c
}

// sameMachine makes a store in another process on the machine of st.
func sameMachine(t *testing.T, c *testenv.EtcdCluster, st *Store) *Store {
	t.Helper()
	s := open(t, dial(t, c), c.Prefix())
	s.domain, s.clock = st.domain, st.clock
	return s
}

// report makes a progress report. It may come after the deadline.
func report(mine tenure.Request) tenure.Request {
	req := then(tenure.Report, mine)
	req.Progress, req.Resume = "half", true
	return req
}

// TestAClockThatWasSetBackEndsNoLease, whether the record or the heartbeat was
// written while it was ahead.
func TestAClockThatWasSetBackEndsNoLease(t *testing.T) {
	t.Parallel()
	const far = int64(3 * time.Hour) // the leases have an hour
	refused := func(t *testing.T, st *Store, key string) {
		t.Helper()
		if a := resolve(t.Context(), st, longClaim(key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Errorf("a claim of what the holder has: granted as %q, %v; want held", a.Record.Cause, a.Err)
		}
	}
	t.Run("the heartbeat was ahead when the record was written anew", func(t *testing.T) {
		holder, other, ahead, _ := twoMachines(t)
		ahead.Store(far)
		mine := longClaim("back/heartbeat", "ann")
		must(t, holder, mine)
		must(t, holder, then(tenure.Renew, mine))
		refused(t, other, mine.Key)
		ahead.Store(0)
		for range 3 { // writes the record anew, and then the heartbeat
			must(t, holder, then(tenure.Renew, mine))
			refused(t, other, mine.Key)
		}
	})
	t.Run("the record was ahead when the heartbeat was written", func(t *testing.T) {
		holder, other, ahead, c := twoMachines(t)
		mine := longClaim("back/record", "ann")
		must(t, holder, mine)
		ahead.Store(far)
		must(t, holder, report(mine))
		ahead.Store(0)
		must(t, holder, then(tenure.Renew, mine))
		for range 2 {
			refused(t, other, mine.Key)
		}
		must(t, sameMachine(t, c, holder), report(mine)) // leaves the lease with its store
		for range 2 {
			refused(t, other, mine.Key)
		}
		must(t, holder, then(tenure.Renew, mine))
	})
}

// TestAReportFromAnotherProcessSetsNoClockBack. It also moves no deadline.
func TestAReportFromAnotherProcessSetsNoClockBack(t *testing.T) {
	t.Parallel()
	holder, other, ahead, c := twoMachines(t)
	mine := longClaim("report/elsewhere", "ann")
	must(t, holder, mine)
	ahead.Store(int64(30 * time.Minute))
	must(t, holder, then(tenure.Renew, mine))
	if a := resolve(t.Context(), other, longClaim(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Fatalf("a claim of what the holder has: %v, want held", a.Err)
	}
	before := other.clocks.atLeast(mine.Key, holder.domain)
	must(t, sameMachine(t, c, holder), report(mine))
	testenv.Eventually(t, "the record is read", func() error {
		resp, err := other.txn(t.Context(), nil, other.reads(mine.Key), nil)
		if err == nil {
			_, err = other.parse(mine.Key, resp.Responses, resp.Header.Revision)
		}
		return err
	})
	if after := other.clocks.atLeast(mine.Key, holder.domain); after.Before(before) {
		t.Errorf("the holder's clock is at %s, and was at %s", after, before)
	}
}

// TestALeaseHasItsTTLAfterAClockWasSetBack, and no more, although it had a
// later renewal.
func TestALeaseHasItsTTLAfterAClockWasSetBack(t *testing.T) {
	t.Parallel()
	holder, other, ahead, _ := twoMachines(t)
	ahead.Store(int64(3 * time.Hour))
	stalls, goesOn := longClaim("back/stalls", "ann"), longClaim("back/goes-on", "ann")
	must(t, holder, stalls, goesOn)
	must(t, holder, then(tenure.Renew, stalls), then(tenure.Renew, goesOn))
	ahead.Store(0)
	must(t, holder, then(tenure.Renew, stalls), then(tenure.Renew, goesOn))
	must(t, holder, then(tenure.Renew, goesOn))
	for who, st := range map[string]*Store{"the holder": holder, "another": other} {
		testenv.Eventually(t, who+" reads it", func() error {
			rec, err := st.Get(t.Context(), stalls.Key)
			if left := rec.Deadline.Sub(st.now()); err == nil && left > stalls.TTL+stalls.TTL/10 {
				t.Errorf("for %s it ends in %s; its TTL is %s", who, left, stalls.TTL)
			}
			return err
		})
	}
}

// TestARestoreForgetsClocks: revisions begin again at a lower number.
func TestARestoreForgetsClocks(t *testing.T) {
	t.Parallel()
	s := New(nil, nil)
	defer s.Close()
	clock, now := newIdentity(), time.Now()
	s.clocks.saw("k", clock, now.Add(time.Hour), 100)
	s.sawRevision(100, 50)
	s.clocks.saw("k", clock, now, 51)
	if got := s.clocks.atLeast("k", clock); !got.Before(now.Add(time.Hour)) {
		t.Errorf("the clock is at %s, and the restored record says %s", got, now)
	}
}
