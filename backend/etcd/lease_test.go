package etcd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestNoAnswerRestsOnADroppedEtcdLease: the store dropped it as expired, while
// its heartbeat still exists. Nobody keeps it alive for as long as an answer
// would promise.
func TestNoAnswerRestsOnADroppedEtcdLease(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	mine := claim("gone/held", "ann")
	must(t, st, mine)
	v := st.cached(mine.Key)
	for name, g := range map[string]*group{
		"a grant":   {step: writing, etcdLease: v.own, lasts: mine.TTL, next: v.stored, beat: &v.beat},
		"a renewal": {step: writing, etcdLease: v.own, lasts: mine.TTL, beat: &v.beat},
	} {
		if ready := st.extendAll(t.Context(), []*group{g}); len(ready) != 1 {
			t.Errorf("%s on what lives does not go on", name)
		}
		defer func() {
			if ready := st.extendAll(t.Context(), []*group{g}); len(ready) != 0 {
				t.Errorf("%s on what was given up goes on", name)
			}
		}()
	}
	st.leaseLost(v.own)
}

// TestADroppedEtcdLeaseIsNotUsedOnceGranted: it was dropped before etcd granted
// it.
func TestADroppedEtcdLeaseIsNotUsedOnceGranted(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	a := st.etcdLeaseFor(leaseSeconds(time.Minute))
	st.leaseLost(a)
	if err := st.extendLease(t.Context(), a, 0); !errors.Is(err, errLeaseLost) || a.id != 0 {
		t.Errorf("etcd lease %x, %v", a.id, err)
	}
	must(t, st, claim("gone/never", "ann"))
	if v := st.cached("gone/never"); v.own == nil || v.own == a || v.stored.rec.State != tenure.Held {
		t.Errorf("it is %s, on the etcd lease %v", v.stored.rec.State, v.own)
	}
}

// TestTTLsThatNobodyUsesAnyMoreAreForgotten: a store does not keep an etcd
// lease for every TTL for ever.
func TestTTLsThatNobodyUsesAnyMoreAreForgotten(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	for n := range 20 {
		mine := claimFor(fmt.Sprintf("gone/ttl/%d", n), "ann", time.Duration(n+1)*time.Minute)
		must(t, st, mine)
		must(t, st, then(tenure.Release, mine))
	}
	held := longClaim("gone/ttl/held", "ann")
	must(t, st, held)
	st.mu.Lock()
	for seconds, a := range st.etcdLeases {
		if seconds != leaseSeconds(held.TTL) {
			a.goodUntil = clock.System().Now() // as if its time were over
		}
	}
	st.mu.Unlock()
	must(t, st, claimFor("gone/ttl/other", "ann", 2*time.Hour))
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.etcdLeases) != 2 || len(st.held) != 2 {
		t.Errorf("it keeps %d etcd leases and %d keys", len(st.etcdLeases), len(st.held))
	}
}
