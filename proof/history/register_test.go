package history

import (
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// Every answer that a sound store can give is accepted, also if outcomes are
// unknown.
func TestLawfulHistoriesAreAccepted(t *testing.T) {
	for name, s := range map[string]*scene{
		"nothing": {},
		"one after the other": new(scene).takes("a", "1", 10, 100).holds("a", "1", 20, 100).
			acquires("b", "2", 15, 18, record(Held, "1", 100, 10, 10+ttl, 16)).
			releases("a", "1", 30, 32, gone("1", 100, 10, 31)).takes("b", "2", 40, 101),
		"after the deadline": new(scene).takes("a", "1", 10, 100).takes("b", "2", 10+ttl, 2000).
			renews("a", "1", 1015, 1020, record(NotOwned, "2", 2000, 10+ttl, 10+2*ttl, 1016)),
		"a reply that was lost, and asked for again": new(scene).acquires("a", "1", 5, 15, unknown).
			acquires("a", "1", 20, 25, record(OK, "1", 100, 10, 10+ttl, 22)),
		"a grant that others saw first": new(scene).acquires("a", "1", 5, Never, Result{}).
			acquires("b", "2", 11, 14, record(Held, "1", 100, 10, 10+ttl, 12)).takes("b", "3", 10+ttl, 2000),
		"a grant that nobody saw, and that took the key from its holder": new(scene).takes("a", "1", 10, 100).acquires("b", "2", 5, Never, Result{}).
			renews("a", "1", 1500, 1510, Result{Outcome: NotOwned, Token: 1010, Grant: id("2"), State: tenure.Held, Acquired: 1200, Deadline: 2200, Now: 1505}),
		"an acquire that never arrived": new(scene).acquires("a", "1", 5, Never, Result{}).takes("b", "2", 10, 100).
			releases("b", "2", 20, 22, gone("2", 100, 10, 21)).takes("c", "3", 30, 101),
		"a release that nobody confirmed, and that happened": new(scene).takes("a", "1", 10, 100).releases("a", "1", 20, 25, unknown).takes("b", "2", 40, 101),
		"a release that nobody confirmed, and that did not": new(scene).takes("a", "1", 10, 100).releases("a", "1", 20, 25, unknown).
			acquires("b", "2", 40, 45, record(Held, "1", 100, 10, 10+ttl, 42)).takes("b", "3", 10+ttl, 2000),
		"a release that is sent twice, and arrives after another's grant": new(scene).takes("a", "1", 10, 100).releases("a", "1", 20, 60, gone("1", 100, 10, 31)).
			releases("a", "1", 30, 32, gone("1", 100, 10, 31)).takes("b", "2", 40, 101),
		"a renewal that nobody confirmed, and that kept the key": new(scene).takes("a", "1", 10, 100).renews("a", "1", 900, 950, unknown).
			acquires("b", "2", 1100, 1110, record(Held, "1", 100, 10, 900+ttl, 1105)).renews("a", "1", 1200, 1210, record(OK, "1", 100, 10, 1205+ttl, 1205)),
		"a renewal that the store sent twice by itself": new(scene).takes("a", "1", 10, 100).
			renews("a", "1", 900, 900+300_000, record(OK, "1", 100, 10, 1205+ttl, 1205)),
		"a lease that was resumed": new(scene).takes("a", "1", 10, 100).
			add("a", 1200, 1210, Call{Kind: Lease, Verb: tenure.Renew, Grant: id("1"), Resume: true}, record(OK, "1", 100, 10, 1205+ttl, 1205)),
		"a failover that takes back a release": new(scene).takes("a", "1", 10, 100).releases("a", "1", 20, 22, gone("1", 100, 10, 21)).
			rewinds(30, 40).acquires("b", "2", 50, 55, record(Held, "1", 100, 10, 10+ttl, 52)).takes("b", "3", 10+ttl, 2000),
		"a failover that takes back a grant, which is asked for again": new(scene).acquires("a", "1", 5, 35, unknown).
			acquires("b", "2", 11, 14, record(Held, "1", 100, 10, 10+ttl, 12)).rewinds(30, 40).takes("a", "1", 50, 150),
		"a failover that takes back a grant, and another comes": new(scene).takes("a", "1", 10, 100).rewinds(20, 30).takes("b", "2", 40, 140).
			renews("a", "1", 50, 55, record(NotOwned, "2", 140, 40, 40+ttl, 52)).holds("a", "1", 49, 100),
	} {
		t.Run(name, func(t *testing.T) { expect(t, s.ops, Scope{}) })
	}
}

// Each history must be reported for the law that it breaks, and no other.
func TestUnlawfulHistoriesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		s    *scene
		laws []Law
	}{
		"two holders at once":                       {new(scene).takes("a", "1", 10, 100).takes("b", "2", 500, 500), []Law{Register}},
		"two holders who both are sure":             {new(scene).takes("a", "1", 10, 100).takes("b", "2", 500, 500).holds("a", "1", 600, 100), []Law{Register, Exclusion}},
		"a holder whose own deadline is later":      {new(scene).takes("a", "1", 10, 100).takes("b", "2", 10+ttl, 2000).holds("a", "1", 1500, 100), []Law{Exclusion}},
		"a holder that nobody granted anything":     {new(scene).takes("a", "1", 10, 100).holds("b", "2", 20, 100), []Law{Exclusion}},
		"one token twice":                           {new(scene).takes("a", "1", 10, 100).releases("a", "1", 20, 22, gone("1", 100, 10, 21)).takes("b", "2", 40, 100), []Law{Tokens, Register}},
		"a token that goes down":                    {new(scene).takes("a", "1", 10, 100).takes("b", "2", 2000, 50), []Law{Tokens, Register}},
		"a token that goes down, across a failover": {new(scene).takes("a", "1", 10, 100).rewinds(20, 30).takes("b", "2", 40, 50), []Law{Tokens, Register}},
		"one secret granted twice":                  {new(scene).takes("a", "1", 10, 100).takes("a", "1", 2000, 2000), []Law{Tokens, Register}},
		"a grant that nobody asked for":             {new(scene).takes("a", "1", 10, 100).renews("a", "1", 20, 25, record(OK, "9", 120, 15, 15+ttl, 22)), []Law{Tokens, Register}},
		"a renewal after another was granted": {new(scene).takes("a", "1", 10, 100).takes("b", "2", 10+ttl, 2000).
			renews("a", "1", 1500, 1510, record(OK, "1", 100, 10, 1505+ttl, 1505)), []Law{Register}},
		"a renewal after the deadline": {new(scene).takes("a", "1", 10, 100).renews("a", "1", 1500, 1510, record(OK, "1", 100, 10, 1505+ttl, 1505)), []Law{Register}},
		"a release by another's grant": {new(scene).takes("a", "1", 10, 100).acquires("b", "2", 12, 14, record(Held, "1", 100, 10, 10+ttl, 13)).
			releases("b", "2", 20, 22, gone("1", 100, 10, 21)), []Law{Register}},
		"a key that is free again without a release": {new(scene).takes("a", "1", 10, 100).renews("a", "1", 50, 55, record(NotOwned, "1", 100, 10, 10+ttl, 52)), []Law{Register}},
		"a holder that is told another's name":       {new(scene).takes("a", "1", 10, 100).takes("b", "2", 2000, 2000).acquires("c", "3", 2100, 2110, record(Held, "1", 100, 10, 10+ttl, 2105)), []Law{Register}},
		"a record that is forgotten":                 {new(scene).takes("a", "1", 10, 100).renews("a", "1", 2000, 2010, Result{Outcome: NotOwned}), []Law{Register}},
		"a deadline that comes nearer": {new(scene).takes("a", "1", 10, 100).renews("a", "1", 500, 505, record(OK, "1", 100, 10, 502+ttl, 502)).
			acquires("b", "2", 600, 605, record(Held, "1", 100, 10, 10+ttl, 602)), []Law{Register}},
		"a late copy that resurrects": {new(scene).takes("a", "1", 10, 100).releases("a", "1", 20, 22, gone("1", 100, 10, 21)).
			acquires("a", "1", 30, 35, record(OK, "1", 100, 10, 10+ttl, 32)), []Law{Register}},
		"an answer that no request gets": {new(scene).takes("a", "1", 10, 100).renews("a", "1", 20, 25, record(Held, "1", 100, 10, 10+ttl, 22)), []Law{Register}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, c.s.ops, Scope{}, c.laws...) })
	}
}

// Untimed must leave out the laws that rest on the clock, and no others.
func TestLawsAboutTimeCanBeLeftOut(t *testing.T) {
	s := new(scene).takes("a", "1", 10, 100).takes("b", "2", 500, 500).holds("a", "1", 600, 100)
	expect(t, s.ops, Scope{Untimed: true})
	s.renews("a", "1", 700, 710, record(OK, "1", 100, 10, 705+ttl, 705))
	expect(t, s.ops, Scope{Untimed: true}, Register)
}

// A history that was not shown to be right counts as wrong.
func TestASearchWithoutEndIsAFailure(t *testing.T) {
	s := new(scene)
	for i := range int64(400) { // all at once, and no order can explain the last
		s.acquires("p", string(rune('a'+i%20))+string(rune('a'+i/20)), i, 5000+i, unknown)
	}
	s.takes("q", "0", 6000, 100).takes("r", "zz", 6002, 50)
	found := Check(s.ops, Scope{Patience: time.Nanosecond})
	if !laws(found)[Register] {
		t.Errorf("found %v", found)
	}
}
