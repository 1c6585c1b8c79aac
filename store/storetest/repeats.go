package storetest

import (
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func repeats() []check {
	return []check{
		{"acquire again while alive: same answer, same deadline", againWhileAlive},
		{"acquire again after release: a secret is granted once", againAfterRelease},
		{"acquire again after expiry: nothing is resurrected", againAfterExpiry},
		{"acquire again after another's term", againAfterAnother},
		{"acquire again after an operator's act", againAfterOperator},
		{"law 1: a secret is granted once, whatever came between", grantedOnce},
		{"release again is success, and changes nothing", releaseAgain},
		{"an operator's act again burns no second token", handAgain},
	}
}

// unchanged sends a request and makes sure that it leaves the record unchanged.
func (t *trial) unchanged(req tenure.Request) store.Answer {
	t.Helper()
	before := t.get(t.store, req.Key)
	records := map[string]tenure.Record{req.Key: before}
	a := t.stepFrom(records, req)
	// stepFrom has compared the record in the store with this one.
	if d := differ(before, records[req.Key], wholeHistory); d != "" {
		t.Fatalf("%s again has changed the record: %s", req.Verb, d)
	}
	return a
}

func (t *trial) aLittleLater() { t.Helper(); t.pass(t.now().Add(brief)) }

func againWhileAlive(t *trial) {
	mine := acquire("repeats/alive", "ann")
	first := t.must(mine)
	t.aLittleLater()
	again := t.unchanged(mine)
	if again.Err != nil {
		t.Fatalf("the same request again, its grant alive: %v; want the same answer", again.Err)
	}
	if again.Record.Token != first.Record.Token || !again.Record.Deadline.Equal(first.Record.Deadline) {
		t.Fatalf("the same request again got token %d until %s, first %d until %s: neither may move",
			again.Record.Token, clockTime(again.Record.Deadline), first.Record.Token, clockTime(first.Record.Deadline))
	}
	// After a renewal the answer is the renewed lease.
	renewed := t.must(renew(mine))
	if again = t.unchanged(mine); again.Err != nil || !again.Record.Deadline.Equal(renewed.Record.Deadline) {
		t.Fatalf("the same request after a renewal: %v until %s, want the renewed deadline %s",
			again.Err, clockTime(again.Record.Deadline), clockTime(renewed.Record.Deadline))
	}
}

func againAfterRelease(t *trial) {
	for _, end := range []func(tenure.Request) tenure.Request{release, fail} {
		mine := acquire("repeats/released", "ann")
		t.must(mine)
		t.must(end(mine))
		t.refused(t.unchanged(mine), tenure.WhyReleased)
		t.refused(t.unchanged(renew(mine)), tenure.WhyReleased)
		t.refused(t.unchanged(report(mine, "late")), tenure.WhyReleased)
	}
}

func againAfterExpiry(t *trial) {
	mine := t.expiring(acquire("repeats/expired", "ann"))
	t.must(mine)
	t.expire(mine.Key)
	t.refused(t.unchanged(mine), tenure.WhyExpired)
	t.refused(t.unchanged(renew(mine)), tenure.WhyExpired)
	t.refused(t.unchanged(release(mine)), tenure.WhyExpired)
	// Only a request to resume gets the lease back, and only while nobody else
	// was granted it.
	token := t.get(t.store, mine.Key).Token
	back := resume(mine)
	back.TTL = long
	if a := t.must(back); a.Record.Token != token {
		t.Fatalf("resumed with token %d, had %d", a.Record.Token, token)
	}
}

func againAfterAnother(t *trial) {
	mine, other := t.expiring(acquire("repeats/another", "ann")), acquire("repeats/another", "bob")
	t.must(mine)
	t.expire(mine.Key)
	t.must(other)
	for _, req := range []tenure.Request{
		mine, renew(mine), resume(mine), report(mine, "late"), release(mine), fail(mine),
	} {
		t.refused(t.unchanged(req), tenure.WhySuperseded)
	}
	t.must(release(other))
	for _, req := range []tenure.Request{mine, renew(mine), resume(mine)} {
		t.refused(t.unchanged(req), tenure.WhySuperseded)
	}
}

func againAfterOperator(t *trial) {
	for name, hand := range map[string]tenure.Request{
		"takeover": takeover("repeats/takeover"), "reserve": reserve("repeats/reserve", "ann"),
		"revoke": revoke("repeats/revoke"),
	} {
		mine := acquire("repeats/"+name, "ann")
		t.must(mine)
		t.must(hand)
		for _, req := range []tenure.Request{mine, renew(mine), resume(mine), report(mine, "late"), release(mine)} {
			t.refused(t.unchanged(req), tenure.WhyTakenOver)
		}
	}
}

func grantedOnce(t *trial) {
	const key = "laws/1/secret"
	mine := acquire(key, "ann")
	s := scene{key: key, records: map[string]tenure.Record{key: {}}}
	s.must(t, mine)
	s.must(t, release(mine))
	// As many transfers as the history has room for, besides this one.
	for range tenure.HistoryLen - 1 {
		next := acquire(key, "bob")
		s.must(t, next)
		s.must(t, release(next))
		before := s.records[key]
		t.refused(t.stepFrom(s.records, mine), tenure.WhyReleased)
		if d := differ(before, s.records[key], wholeHistory); d != "" {
			t.Fatalf("acquire again has changed the record: %s", d)
		}
	}
}

func releaseAgain(t *trial) {
	const key = "repeats/release"
	mine, other := acquire(key, "ann"), acquire(key, "bob")
	t.must(mine)
	t.must(release(mine))
	for _, req := range []tenure.Request{release(mine), fail(mine)} {
		if a := t.unchanged(req); a.Err != nil {
			t.Fatalf("releasing what one has released: %v; want success", a.Err)
		}
	}
	t.must(other)
	if a := t.unchanged(release(mine)); a.Err != nil {
		t.Fatalf("releasing what one has released, the key being another's: %v; want success", a.Err)
	}
	t.must(renew(other))
}

func handAgain(t *trial) {
	for _, hand := range []tenure.Request{
		takeover("repeats/hand/1"), reserve("repeats/hand/2", "bob"), revoke("repeats/hand/3"),
	} {
		mine := acquire(hand.Key, "ann")
		t.must(mine)
		first := t.must(hand)
		if first.Record.Token <= t.get(t.store, hand.Key).History[0].Token {
			t.Fatalf("%s burned no token", hand.Verb)
		}
		t.aLittleLater()
		if again := t.unchanged(hand); again.Err != nil || again.Record.Token != first.Record.Token {
			t.Fatalf("%s again: %v with token %d, first %d",
				hand.Verb, again.Err, again.Record.Token, first.Record.Token)
		}
	}
}
