package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func retention() []check {
	return []check{
		{"records that have not mattered for a retention are dropped", quietIsDropped},
		{"records that still matter are kept", keptWhileItMatters},
		{"nothing is dropped before its time", notDroppedEarly},
		{"sweeping takes nothing from a new holder", sweepingWhileAcquiring},
		{"a client that stood still during a sweep takes nothing from a new holder", sweptWhileStill},
		{"many reclaim a key while it is swept, one gets it", reclaimWhileSwept},
		{"nothing of a key is left when it is dropped", nothingLeft},
	}
}

// forgetful gives the trial's handles a retention that a check can wait for.
func (t *trial) forgetful() {
	t.Helper()
	t.options.Retention = 200 * time.Millisecond
	if t.Advance != nil {
		t.options.Retention = 6 * time.Hour
	}
	t.reopen()
}

// sweep sweeps the store now. It reports whether the store can sweep on demand.
func (t *trial) sweep(st store.Store) bool {
	t.Helper()
	sw, ok := st.(store.Sweeper)
	if !ok {
		return false
	}
	_, err := sw.Sweep(t.ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("Sweep: %v", err)
	}
	return err == nil
}

// forget lets keys become old. It makes sure that the store forgets them, at a
// sweep or soon by itself.
func (t *trial) forget(keys ...string) {
	t.Helper()
	var old time.Time
	for _, key := range keys {
		if quiet := t.get(t.store, key).Quiet(); quiet.After(old) {
			old = quiet
		}
	}
	t.pass(old.Add(t.options.Retention))
	giveUp := time.Now().Add(t.Patience)
	for {
		swept := t.sweep(t.store)
		left := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return t.get(t.store, key).IsZero() })
		if len(left) == 0 {
			return
		}
		if swept || time.Now().After(giveUp) {
			t.Fatalf("%d of %d records are still there a retention after they last mattered, %q among them",
				len(left), len(keys), left[0])
		}
		t.pass(t.now().Add(100 * time.Millisecond))
	}
}

func quietIsDropped(t *trial) {
	t.forgetful()
	freed, failed := acquire("retention/freed", "ann"), acquire("retention/failed", "ann")
	expired := briefly(acquire("retention/expired", "ann"))
	periodic, holding := briefly(acquire("retention/period", "ann")), briefly(acquire("retention/hold", "ann"))
	periodic.Every, holding.HoldFor = brief, brief
	var all []string
	for _, req := range []tenure.Request{freed, failed, expired, periodic, holding} {
		all = append(all, req.Key)
	}
	hands := []tenure.Request{
		briefly(takeover("retention/taken")), briefly(reserve("retention/reserved", "ann")),
		revoke("retention/revoked"),
	}
	for _, req := range hands {
		all = append(all, req.Key)
	}
	t.apply(t.store, freed, failed, expired, periodic, holding, hands[0], hands[1], hands[2])
	t.apply(t.store, release(freed), fail(failed), release(periodic), release(holding))
	t.forget(all...)
	for _, key := range all {
		a := t.must(acquire(key, "bob"))
		if a.Record.Cause != tenure.First || len(a.Record.History) > 1 {
			t.Fatalf("%q was dropped and begins again with cause %q and %d transfers",
				key, a.Record.Cause, len(a.Record.History))
		}
	}
}

func keptWhileItMatters(t *trial) {
	t.forgetful()
	lasting := 100 * 24 * time.Hour
	held, periodic := acquire("retention/held", "ann"), acquire("retention/period", "ann")
	holding := acquire("retention/hold", "ann")
	reserved, taken := reserve("retention/reserved", "bob"), takeover("retention/taken")
	once, quiet := acquire("retention/once", "ann"), acquire("retention/quiet", "ann")
	for _, req := range []*tenure.Request{&held, &reserved, &taken} {
		req.TTL = tenure.MaxTTL
	}
	periodic.Every, holding.HoldFor, once.Every = lasting, lasting, tenure.Once
	kept := []tenure.Request{held, periodic, holding, once, reserved, taken}
	for _, req := range append(kept, release(periodic), release(holding), release(once), quiet, release(quiet)) {
		t.must(req)
	}
	var before []tenure.Record
	for _, req := range kept {
		before = append(before, t.get(t.store, req.Key))
	}
	t.forget(quiet.Key) // a wrong sweep would drop the others, too
	for _, want := range before {
		if d := differ(want, t.get(t.store, want.Key), wholeHistory); d != "" {
			t.Fatalf("%q matters for days, and after a sweep: %s", want.Key, d)
		}
	}
	t.must(renew(held))
	other := acquire(periodic.Key, "bob")
	other.Every = lasting
	t.refused(t.step(other), tenure.WhyPeriod)
	other = acquire(once.Key, "bob")
	other.Every = tenure.Once
	t.refused(t.step(other), tenure.WhyPeriod)
	t.refused(t.step(acquire(holding.Key, "bob")), tenure.WhyHold)
	t.refused(t.step(acquire(reserved.Key, "ann")), tenure.WhyReserved)
}

func notDroppedEarly(t *trial) {
	if t.Advance != nil {
		t.forgetful()
	}
	mine := acquire("retention/early", "ann")
	t.must(mine)
	t.must(release(mine))
	retention := t.options.Retention
	if retention == 0 {
		retention = store.DefaultRetention
	}
	rec := t.get(t.store, mine.Key)
	if t.Advance != nil {
		t.pass(rec.Quiet().Add(retention - time.Microsecond))
	}
	t.sweep(t.store)
	got := t.get(t.store, mine.Key)
	if got.IsZero() && t.now().Before(rec.Quiet().Add(retention)) {
		t.Fatalf("the record was dropped before it was a retention old")
	}
	if t.Advance != nil {
		t.Advance(time.Microsecond)
		t.forget(mine.Key)
	}
}

// sweepingWhileAcquiring lets every client sweep while others acquire the very
// keys that are due to be dropped.
func sweepingWhileAcquiring(t *trial) {
	t.forgetful()
	handles := t.handles(3)
	n := t.many(60, 8, 20)
	for round := range t.many(8, 3, 4) {
		old := make([]tenure.Request, n)
		for i := range old {
			old[i] = acquire(fmt.Sprintf("retention/race/%d", i), "ann")
			if a := t.resolve(t.store, old[i]); a.Err != nil {
				t.Fatalf("acquire: %v", a.Err)
			}
		}
		var last tenure.Record
		for _, req := range old {
			if a := t.resolve(t.store, release(req)); a.Err == nil {
				last = a.Record
			}
		}
		t.pass(last.Quiet().Add(t.options.Retention))
		requests, answers := make([]tenure.Request, n), make([]store.Answer, n)
		suite.Together(n+len(handles), func(i int) {
			if round%2 == 1 { // so that not always the same goroutines start first
				i = n + len(handles) - 1 - i
			}
			if i >= n {
				if sw, ok := handles[i-n].(store.Sweeper); ok {
					_, _ = sw.Sweep(t.ctx)
				}
				return
			}
			requests[i] = acquire(old[i].Key, "bob")
			answers[i] = t.resolve(handles[i%len(handles)], requests[i])
		})
		for i, a := range answers {
			if a.Err != nil {
				t.Fatalf("acquiring a key that is due to be dropped: %v", a.Err)
			}
			if rec := t.get(t.store, old[i].Key); rec.Grant != requests[i].Secret.Grant() {
				t.Fatalf("%q was granted while it was swept, and the grant is gone: %+v", old[i].Key, rec)
			}
			if a := t.resolve(t.store, release(requests[i])); a.Err != nil {
				t.Fatalf("releasing it: %v", a.Err)
			}
		}
	}
}

func nothingLeft(t *trial) {
	t.forgetful()
	mine := acquire("retention/left", "ann")
	t.must(mine)
	t.must(release(mine))
	t.forget(mine.Key)
	if records := t.list(t.store, ""); len(records) != 0 {
		t.Fatalf("a dropped key is still listed: %+v", records)
	}
	t.refused(t.step(renew(mine)), tenure.WhyUnknown)
	t.refused(t.step(release(mine)), tenure.WhyUnknown)
}
