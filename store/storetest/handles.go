package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func handles() []check {
	return []check{
		{"a change by one client is seen by another at once", seenAtOnce},
		{"a renewal by one client is seen by another, and counts", renewalSeen},
		{"leases outlive the client that took them", outliveClose},
		{"closing twice, and asking what is closed", closedStore},
		{"one handle used by many at once", manyAtOnce},
		{"a wiped place can be used on", usedAfterWipe},
	}
}

func seenAtOnce(t *trial) {
	one, two := t.store, t.open()
	for n := range t.many(30, 3, 10) {
		mine := acquire(fmt.Sprintf("handles/seen/%d", n%3), "ann")
		for _, req := range []tenure.Request{mine, renew(mine), report(mine, "half"), release(mine)} {
			a := t.steps(one, req)[0]
			if d := differ(a.Record, withoutHistory(t.get(two, mine.Key)), historyOrNone); a.Err != nil || d != "" {
				t.Fatalf("%s by one client: %v; the other sees: %s", req.Verb, a.Err, d)
			}
			one, two = two, one
		}
	}
}

// renewalSeen renews through the handle that acquired, as clients do. If the
// clock can be moved, another handle also asks for the key after the first
// deadline.
func renewalSeen(t *trial) {
	other := t.open()
	kept, left := acquire("handles/renewed/1", "ann"), acquire("handles/renewed/2", "ann")
	alone := acquire("handles/renewed/3", "ann")
	first := t.apply(t.store, kept, left, alone)
	t.pass(first[0].Now.Add(time.Millisecond))
	again := append(t.apply(t.store, renew(kept)), t.apply(t.store, renew(kept), renew(alone))...)
	for i, a := range append(first, again...) {
		if a.Err != nil {
			t.Fatalf("request %d of one's own: %v", i, a.Err)
		}
	}
	for _, a := range []store.Answer{again[1], again[2], first[1]} {
		if d := differ(a.Record, withoutHistory(t.get(other, a.Record.Key)), historyOrNone); d != "" {
			t.Fatalf("renewed by one client; the other sees: %s", d)
		}
	}
	if t.Advance == nil {
		return
	}
	t.pass(first[0].Record.Deadline)
	for _, req := range []tenure.Request{kept, alone} {
		if a := t.apply(other, acquire(req.Key, "bob"))[0]; !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatalf("%q was renewed, and its first deadline has passed: another's acquire is answered %v",
				req.Key, a.Err)
		}
	}
	if a := t.apply(other, acquire(left.Key, "bob"))[0]; a.Err != nil {
		t.Fatalf("%q was not renewed, and its deadline has passed: another's acquire is answered %v", left.Key, a.Err)
	}
}

func withoutHistory(rec tenure.Record) tenure.Record {
	rec.History = nil
	return rec
}

func outliveClose(t *trial) {
	mine := acquire("handles/outlive", "ann")
	mine.Guards = []string{"one"}
	freed := acquire("handles/freed", "bob")
	for _, req := range []tenure.Request{mine, report(mine, "half"), freed, release(freed)} {
		t.must(req)
	}
	before, beforeFreed := t.get(t.store, mine.Key), t.get(t.store, freed.Key)
	t.reopen()
	if d := differ(before, t.get(t.store, mine.Key), wholeHistory); d != "" {
		t.Fatalf("closed and opened again: %s", d)
	}
	if d := differ(beforeFreed, t.get(t.store, freed.Key), wholeHistory); d != "" {
		t.Fatalf("closed and opened again: %s", d)
	}
	t.refused(t.step(acquire(mine.Key, "bob")), tenure.WhyHeld)
	t.must(renew(mine))
	t.must(release(mine))
}

func closedStore(t *trial) {
	st := t.Open(t.TB, t.options)
	mine := acquire("handles/closed", "ann")
	t.steps(st, mine)
	for range 2 {
		if err := st.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	// A closed store may say so, or still answer. It must not answer wrongly.
	answers := st.Apply(t.ctx, []tenure.Request{renew(mine), acquire(mine.Key, "bob")})
	if len(answers) != 2 {
		t.Fatalf("2 requests got %d answers", len(answers))
	}
	if a := answers[0]; a.Err != nil && !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("renewing through a closed handle: %v", a.Err)
	}
	if a := answers[1]; !errors.Is(a.Err, tenure.ErrHeld) && !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("acquiring through a closed handle what another holds: %v", a.Err)
	}
	t.must(renew(mine))
}

// manyAtOnce is mostly for the race detector. Many goroutines make all the
// calls that a client makes.
func manyAtOnce(t *trial) {
	suite.Together(t.many(12, 5, 6), func(i int) {
		for n := range t.many(30, 3, 8) {
			a := acquire(fmt.Sprintf("handles/many/%d", i), "ann")
			b := acquire(fmt.Sprintf("handles/many/%d/%d", i, n), "ann")
			for _, requests := range [][]tenure.Request{
				{a, b}, {renew(a), report(b, "half")}, {release(a), release(b)},
			} {
				for k, answer := range t.store.Apply(t.ctx, requests) {
					if answer.Err != nil || answer.Record.Key != requests[k].Key ||
						answer.Record.Grant != requests[k].Secret.Grant() {
						t.Errorf("%s of a key that nobody else uses: %v", requests[k].Verb, answer.Err)
						return
					}
				}
			}
			if rec, err := t.store.Get(t.ctx, a.Key); err != nil || rec.Key != a.Key || rec.Grant != a.Secret.Grant() {
				t.Errorf("Get(%q): %v, the record of %q", a.Key, err, rec.Key)
			}
			if _, err := t.store.Now(t.ctx); err != nil {
				t.Errorf("Now: %v", err)
			}
			if n%4 == 0 {
				for _, err := range t.store.List(t.ctx, fmt.Sprintf("handles/many/%d/", i)) {
					if err != nil {
						t.Errorf("List: %v", err)
					}
				}
			}
		}
	})
}

func usedAfterWipe(t *trial) {
	other := t.open()
	var keys []string
	for n := range 10 {
		keys = append(keys, fmt.Sprintf("handles/wipe/%d", n))
	}
	t.fill(keys)
	t.Wipe(t.TB)
	t.lists("", nil)
	for _, key := range keys {
		if rec := t.get(other, key); !rec.IsZero() {
			t.Fatalf("after a wipe another client still has %+v", rec)
		}
		t.must(acquire(key, "bob"))
		t.refused(t.steps(other, acquire(key, "cleo"))[0], tenure.WhyHeld)
	}
}
