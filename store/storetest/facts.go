package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/tenure"
)

func facts() []check {
	return []check{
		{"every field is kept as it was given", everyField},
		{"fields of the greatest length are kept", greatestFields},
		{"texts of every kind are kept", oddTexts},
		{"a record that is given out is the receiver's own", noAliasing},
		{"nothing is remembered of an unknown key", unknownKey},
	}
}

func everyField(t *trial) {
	req := acquire("facts/fields", "ann@host")
	req.Instance = "host/123/abc"
	req.TTL = 90*time.Minute + 123457*time.Microsecond
	req.Every = 7*24*time.Hour + time.Microsecond
	req.HoldFor = time.Hour + 999999*time.Microsecond
	req.Guards = []string{"file:///out/today.json", "redis://host/0#key", "file:///out/today.json"}
	t.must(req)
	t.must(report(req, "step 3 of 7"))
	rec := t.get(t.store, req.Key)
	if rec.Owner != req.Owner || rec.Instance != req.Instance || rec.TTL != req.TTL || rec.Every != req.Every ||
		fmt.Sprint(rec.Guards) != fmt.Sprint(req.Guards) || rec.Progress != "step 3 of 7" ||
		rec.Grant != req.Secret.Grant() {
		t.Fatalf("asked for %+v, the record is %+v", req, rec)
	}
	t.must(release(req))
	// The next term keeps nothing of the last one but its period, and the
	// guards that an operator has to raise.
	t.must(takeover(req.Key))
	rec = t.get(t.store, req.Key)
	if rec.Instance != "" || rec.Progress != "" || !rec.ProgressAt.IsZero() || !rec.HoldUntil.IsZero() {
		t.Fatalf("a takeover left of the term before it: %+v", rec)
	}
}

func greatestFields(t *trial) {
	name, text := strings.Repeat("n", tenure.MaxName), strings.Repeat("é", tenure.MaxText/2)
	req := acquire("facts/greatest", name)
	req.Instance = name
	req.TTL, req.Every, req.HoldFor = tenure.MaxTTL, tenure.MaxPeriod, tenure.MaxPeriod
	for range tenure.MaxGuards {
		req.Guards = append(req.Guards, text)
	}
	t.must(req)
	t.must(report(req, text))
	for n := range t.many(tenure.HistoryLen+2, 6, 6) {
		hand := takeover(req.Key)
		hand.Owner, hand.Actor, hand.Note, hand.TTL = name, name, text, tenure.MaxTTL
		hand.Instance = name[:200] + fmt.Sprint(n)
		hand.Guards = req.Guards
		t.must(hand)
	}
}

func oddTexts(t *trial) {
	// Every field of a record gets the same text. On a slow store the fields of
	// one record share four texts, and all of them are among its guards.
	share := 1
	if t.Slow {
		share = 4
	}
	words := oddWords()
	var first, second, third, last []tenure.Request
	for i := 0; i < len(words); i += share {
		key, some := fmt.Sprintf("facts/texts/%d", i), words[i:min(i+share, len(words))]
		text := func(n int) string { return some[n%len(some)] }
		name := func(n int) string {
			if strings.TrimSpace(text(n)) == "" {
				return "x" + text(n) // owners and notes must not be blank
			}
			return text(n)
		}
		req := acquire(key, name(0))
		req.Instance = text(1)
		for n := range some {
			req.Guards = append(req.Guards, text(n), "x"+text(n))
		}
		hand := reserve(key, name(1))
		hand.Actor, hand.Note = name(2), name(3)
		first, second = append(first, req), append(second, report(req, text(2)))
		third, last = append(third, hand), append(last, acquire(key, name(1)))
	}
	records := map[string]tenure.Record{}
	for _, stage := range [][]tenure.Request{first, second, third, last} {
		for i, a := range t.stepsFrom(records, t.store, stage...) {
			if a.Err != nil {
				t.Fatalf("%s with the texts of %+v: %v", stage[i].Verb, first[i], a.Err)
			}
		}
	}
}

func noAliasing(t *trial) {
	req := acquire("facts/own", "ann")
	req.Guards = []string{"one", "two"}
	a := t.must(req)
	want := t.get(t.store, req.Key)
	want.History, want.Guards = slices.Clone(want.History), slices.Clone(want.Guards)
	spoil := func(rec tenure.Record) {
		for i := range rec.History {
			rec.History[i].Owner = "spoilt"
		}
		for i := range rec.Guards {
			rec.Guards[i] = "spoilt"
		}
	}
	spoil(a.Record)
	spoil(t.must(renew(req)).Record)
	spoil(t.step(acquire(req.Key, "bob")).Record)
	spoil(t.get(t.store, req.Key))
	for _, rec := range t.list(t.store, "") {
		spoil(rec)
	}
	req.Guards[0] = "spoilt"
	got := t.get(t.store, req.Key)
	want.Renewed, want.Deadline = got.Renewed, got.Deadline
	if d := differ(want, got, wholeHistory); d != "" {
		t.Fatalf("a record that was given out was changed, and the store's own with it: %s", d)
	}
}

func unknownKey(t *trial) {
	const key = "facts/unknown"
	if rec := t.get(t.store, key); !rec.IsZero() {
		t.Fatalf("Get of an unknown key: %+v", rec)
	}
	if records := t.list(t.store, key); len(records) != 0 {
		t.Fatalf("List of an unknown prefix: %+v", records)
	}
	mine := acquire(key, "ann")
	for _, req := range []tenure.Request{renew(mine), resume(mine), report(mine, "x"), release(mine), fail(mine)} {
		t.refused(t.step(req), tenure.WhyUnknown)
		if rec := t.get(t.store, key); !rec.IsZero() {
			t.Fatalf("%s of an unknown key left %+v", req.Verb, rec)
		}
	}
}
