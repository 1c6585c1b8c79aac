package etcd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestNoAnswerRestsOnADroppedEtcdLease: the store dropped it as expired, while
// its live key still exists. Nobody keeps it alive for as long as an answer
// would promise.
func TestNoAnswerRestsOnADroppedEtcdLease(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	mine := claim("gone/held", "ann")
	must(t, st, mine)
	v := st.cached(mine.Key)
	st.mu.Lock()
	page, _ := st.ownMember(v.stored)
	st.mu.Unlock()
	for name, g := range map[string]*group{
		"a grant":   {step: writing, etcdLease: page.etcdLease, next: v.stored, now: v.stored.rec.Acquired},
		"a renewal": {step: renewing, etcdLease: page.etcdLease, page: page, view: v},
	} {
		if failed := st.extendAll(t.Context(), &batch{groups: []*group{g}})(); len(failed) != 0 {
			t.Errorf("%s on what lives: %v", name, failed)
		}
		defer func() {
			if failed := st.extendAll(t.Context(), &batch{groups: []*group{g}})(); !errors.Is(failed[page.etcdLease], errLeaseLost) {
				t.Errorf("%s on what was given up: %v", name, failed)
			}
		}()
	}
	st.leaseLost(page.etcdLease)
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
	if d := st.cached("gone/never").stored; d.lease == 0 || d.rec.State != tenure.Held {
		t.Errorf("it is %s and hangs on %x", d.rec.State, d.lease)
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
			a.goodUntil = time.Now() // as if its time were over
		}
	}
	st.mu.Unlock()
	must(t, st, claimFor("gone/ttl/other", "ann", 2*time.Hour))
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.etcdLeases) != 2 || len(st.pages) != 2 {
		t.Errorf("it keeps %d etcd leases and %d pages", len(st.etcdLeases), len(st.pages))
	}
}
