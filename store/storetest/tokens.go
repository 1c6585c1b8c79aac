package storetest

import (
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func tokens() []check {
	return []check{
		{"law 2: tokens rise through every kind of end", tokensRise},
		{"law 2: tokens rise after a record was dropped", tokensAfterDrop},
		{"law 2: tokens rise after the store was wiped", tokensAfterWipe},
		{"the clock is a floor for tokens", clockFloor},
		{"above a token that the store does not know", aboveToken},
		{"the highest tokens are kept to the last digit", exactTokens},
	}
}

func tokensRise(t *trial) {
	const key = "laws/2/rise"
	var last fence.Token
	rises := func(a store.Answer, after string) {
		t.Helper()
		if a.Record.Token <= last {
			t.Fatalf("after %s: token %d, the one before was %d", after, a.Record.Token, last)
		}
		last = a.Record.Token
	}
	for range t.many(6, 2, 3) {
		mine := acquire(key, "ann")
		rises(t.must(mine), "the round before")
		t.must(release(mine))
		mine = acquire(key, "bob")
		rises(t.must(mine), "a release")
		t.must(fail(mine))
		rises(t.must(t.expiring(acquire(key, "ann"))), "a failure")
		t.expire(key)
		mine = acquire(key, "bob")
		rises(t.must(mine), "an expiry")
		rises(t.must(t.expiring(takeover(key))), "a takeover")
		t.expire(key)
		rises(t.must(reserve(key, "ann")), "an expired takeover")
		rises(t.must(acquire(key, "ann")), "a reservation")
		rises(t.must(revoke(key)), "a handoff")
		mine = acquire(key, "cleo")
		rises(t.must(mine), "a revocation")
		t.must(release(mine))
	}
}

// tokensAfterDrop lets the store forget a key by its own retention. A forgotten
// record is old, so the clock is already beyond its tokens.
func tokensAfterDrop(t *trial) {
	t.forgetful()
	mine := acquire("laws/2/drop", "ann")
	var last fence.Token
	for range t.many(3, 2, 2) {
		a := t.apply(t.store, mine)[0]
		if a.Err != nil {
			t.Fatalf("acquire: %v", a.Err)
		}
		switch {
		case a.Record.Token <= last:
			t.Fatalf("token %d after the record of token %d was dropped", a.Record.Token, last)
		case last != 0 && (a.Record.Cause != tenure.First || a.Record.Terms != 1):
			t.Fatalf("a dropped key began again with cause %q in term %d", a.Record.Cause, a.Record.Terms)
		}
		last = a.Record.Token
		if a := t.apply(t.store, release(mine))[0]; a.Err != nil {
			t.Fatalf("release: %v", a.Err)
		}
		t.forget(mine.Key)
		mine = acquire(mine.Key, "ann")
	}
}

func tokensAfterWipe(t *trial) {
	mine := acquire("laws/2/wipe", "ann")
	last := t.must(mine).Record.Token
	for range 5 { // tokens run ahead of the clock if there are many
		t.must(release(mine))
		mine = acquire(mine.Key, "ann")
		last = t.must(mine).Record.Token
	}
	for range t.many(3, 2, 2) {
		// The law promises higher tokens only if the old ones are older than
		// this.
		t.pass(time.UnixMicro(int64(last)).Add(time.Millisecond))
		t.Wipe(t.TB)
		if rec := t.get(t.store, mine.Key); !rec.IsZero() {
			t.Fatalf("after the wipe the store still has %+v", rec)
		}
		t.refused(t.step(renew(mine)), tenure.WhyUnknown)
		t.refused(t.step(release(mine)), tenure.WhyUnknown)
		mine = acquire(mine.Key, "ann")
		a := t.must(mine)
		if a.Record.Token <= last || a.Record.Cause != tenure.First {
			t.Fatalf("after a wipe: token %d with cause %q, before it token %d", a.Record.Token, a.Record.Cause, last)
		}
		last = a.Record.Token
	}
}

func clockFloor(t *trial) {
	before := t.now()
	mine := acquire("tokens/floor", "ann")
	a := t.must(mine)
	if floor := fence.Token(before.UnixMicro()); a.Record.Token < floor {
		t.Fatalf("token %d is below the store's clock, %d", a.Record.Token, floor)
	}
	t.must(release(mine))
	t.pass(time.UnixMicro(int64(a.Record.Token)).Add(50 * time.Millisecond))
	floor := fence.Token(t.now().UnixMicro())
	if a := t.must(acquire(mine.Key, "bob")); a.Record.Token < floor {
		t.Fatalf("token %d of a later term is below the store's clock, %d", a.Record.Token, floor)
	}
}

func aboveToken(t *trial) {
	mine := acquire("tokens/above", "ann")
	first := t.must(mine)
	t.must(release(mine))
	mine = acquire(mine.Key, "ann")
	mine.Above = first.Record.Token + fence.Token(time.Hour/time.Microsecond)
	a := t.must(mine)
	if a.Record.Token <= mine.Above || a.Record.Cause != tenure.Recovery {
		t.Fatalf("asked above %d: token %d with cause %q", mine.Above, a.Record.Token, a.Record.Cause)
	}
	t.must(release(mine))
	// Above has no effect if the token has already been passed.
	mine = acquire(mine.Key, "ann")
	mine.Above = 1
	if next := t.must(mine); next.Record.Token <= a.Record.Token || next.Record.Cause != tenure.Released {
		t.Fatalf("asked above 1: token %d with cause %q after token %d",
			next.Record.Token, next.Record.Cause, a.Record.Token)
	}
}

// exactTokens catches stores that keep tokens as floating point numbers, or as
// text with too few digits.
func exactTokens(t *trial) {
	mine := acquire("tokens/exact", "ann")
	mine.Above = tenure.MaxAbove - 3
	want := mine.Above + 1
	for range 8 {
		if a := t.must(mine); a.Record.Token != want {
			t.Fatalf("token %d, want %d", a.Record.Token, want)
		}
		t.must(release(mine))
		mine = acquire(mine.Key, "ann")
		want++
	}
}
