package storetest

import (
	"time"

	"github.com/croft-dev/croft/tenure"
)

func reservations() []check {
	return []check{
		{"only the named owner gets a reserved key", onlyTheNamed},
		{"a reservation ends at its deadline", reservationEnds},
		{"a reservation ends the term before it", reservationEndsTerm},
		{"a reservation can be moved and revoked", reservationMoves},
	}
}

func onlyTheNamed(t *trial) {
	const key = "reservations/named"
	hand := reserve(key, "bob")
	a := t.must(hand)
	if a.Record.State != tenure.Reserved || a.Record.Owner != "bob" || a.Record.Actor != hand.Actor ||
		a.Record.Note != hand.Note {
		t.Fatalf("reserved for bob: the record says %s for %q by %q (%q)",
			a.Record.State, a.Record.Owner, a.Record.Actor, a.Record.Note)
	}
	for _, owner := range []string{"ann", "Bob", "bob ", "bo"} {
		t.refused(t.step(acquire(key, owner)), tenure.WhyReserved)
	}
	// The reservation itself is no lease.
	t.refused(t.step(renew(hand)), tenure.WhyReleased)
	mine := acquire(key, "bob")
	got := t.must(mine)
	if got.Record.Cause != tenure.Handoff || got.Record.Actor != hand.Actor || got.Record.Note != hand.Note ||
		got.Record.Token <= a.Record.Token {
		t.Fatalf("the handoff is token %d, cause %q, by %q (%q)",
			got.Record.Token, got.Record.Cause, got.Record.Actor, got.Record.Note)
	}
	t.refused(t.step(acquire(key, "bob")), tenure.WhyHeld)
	// The reservation is used up. After the release anybody may come, and the
	// record no longer names the operator.
	t.must(release(mine))
	if next := t.must(acquire(key, "ann")); next.Record.Cause != tenure.Released || next.Record.Actor != "" {
		t.Fatalf("the term after the handoff has cause %q and actor %q", next.Record.Cause, next.Record.Actor)
	}
}

func reservationEnds(t *trial) {
	const key = "reservations/ends"
	a := t.must(briefly(reserve(key, "bob")))
	if t.Advance != nil {
		t.pass(a.Record.Deadline.Add(-time.Microsecond))
		t.refused(t.step(acquire(key, "ann")), tenure.WhyReserved)
	}
	t.pass(a.Record.Deadline)
	if got := t.must(acquire(key, "ann")); got.Record.Cause != tenure.Expired {
		t.Fatalf("the term after an expired reservation has cause %q", got.Record.Cause)
	}
}

func reservationEndsTerm(t *trial) {
	const key = "reservations/term"
	mine := acquire(key, "ann")
	granted := t.must(mine)
	hand := reserve(key, "ann")
	if a := t.must(hand); a.Record.Token <= granted.Record.Token {
		t.Fatalf("reserving burned no token: %d after %d", a.Record.Token, granted.Record.Token)
	}
	// Even for the same owner the old grant is over, and a new one begins.
	t.refused(t.step(renew(mine)), tenure.WhyTakenOver)
	t.refused(t.step(release(mine)), tenure.WhyTakenOver)
	t.must(acquire(key, "ann"))
}

func reservationMoves(t *trial) {
	const key = "reservations/moves"
	t.must(reserve(key, "ann"))
	t.must(reserve(key, "bob"))
	t.refused(t.step(acquire(key, "ann")), tenure.WhyReserved)
	t.must(revoke(key))
	if a := t.must(acquire(key, "ann")); a.Record.Cause != tenure.Cancelled {
		t.Fatalf("the term after a revocation has cause %q", a.Record.Cause)
	}
}
