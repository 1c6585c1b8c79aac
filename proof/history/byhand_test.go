package history

import (
	"testing"

	"github.com/croft-dev/croft/tenure"
)

// reserved is the answer to another owner while grant 9 reserves the key for b.
func reserved(token, at, now int64) Result {
	r := made(tenure.Reserve, "9", "b", token, at, now)
	r.Outcome = Held
	return r
}

func (s *scene) takesAs(owner, g string, at, token int64) *scene {
	c := ask(tenure.Acquire, g)
	c.Owner = owner
	return s.add(owner, at-1, at+1, c, record(OK, g, token, at, at+ttl, at))
}

// Operators need not wait, and holders need not learn of it at once.
func TestLawfulActsOfOperatorsAreAccepted(t *testing.T) {
	for name, s := range map[string]*scene{
		"a takeover, and the holder finds out": new(scene).takes("a", "1", 10, 100).acts(tenure.Takeover, "9", "operator", 500, 500).holds("a", "1", 510, 100).
			renews("a", "1", 520, 525, record(NotOwned, "9", 500, 500, 500+ttl, 522)).releases("operator", "9", 600, 605, gone("9", 500, 500, 602)).takes("b", "2", 700, 700),
		"a revocation, and another comes before the holder finds out": new(scene).takes("a", "1", 10, 100).acts(tenure.Revoke, "9", "", 500, 500).
			takes("b", "2", 510, 510).holds("a", "1", 520, 100).renews("a", "1", 530, 535, record(NotOwned, "2", 510, 510, 510+ttl, 532)),
		"a revocation that nobody confirmed, and that happened": new(scene).takes("a", "1", 10, 100).add("operator", 400, Never, byHandCall(tenure.Revoke, "9", ""), Result{}).
			takes("b", "2", 510, 510).holds("a", "1", 520, 100),
		"a takeover that nobody confirmed, and that did not happen": new(scene).takes("a", "1", 10, 100).add("operator", 400, 450, byHandCall(tenure.Takeover, "9", "operator"), unknown).
			renews("a", "1", 500, 505, record(OK, "1", 100, 10, 502+ttl, 502)),
		"a takeover that others saw first": new(scene).takes("a", "1", 10, 100).add("operator", 400, Never, byHandCall(tenure.Takeover, "9", "operator"), Result{}).
			renews("a", "1", 500, 505, record(NotOwned, "9", 410, 410, 410+ttl, 502)),
		"a reservation, for whom it was made and for another": new(scene).takes("a", "1", 10, 100).acts(tenure.Reserve, "9", "b", 500, 500).
			add("c", 510, 515, byHandCall(tenure.Acquire, "3", "c"), reserved(500, 500, 512)).takesAs("b", "2", 600, 600),
		"a reservation that lapses": new(scene).acts(tenure.Reserve, "9", "b", 500, 500).takesAs("c", "3", 500+ttl, 3000),
		"a reservation that is asked for again when it has lapsed": new(scene).acts(tenure.Reserve, "9", "b", 500, 500).
			add("operator", 1600, 1605, byHandCall(tenure.Reserve, "9", "b"), made(tenure.Reserve, "9", "b", 500, 500, 1602)).takesAs("c", "3", 1700, 1700),
		"one operator after the other": new(scene).acts(tenure.Revoke, "7", "", 100, 100).acts(tenure.Takeover, "8", "operator", 200, 200).acts(tenure.Reserve, "9", "b", 300, 300).
			add("operator", 310, 315, byHandCall(tenure.Takeover, "8", "operator"), Result{Outcome: NotOwned, Token: 300, Grant: id("9"), State: tenure.Reserved, Acquired: 300, Deadline: 300 + ttl, Now: 312}),
		"a failover that takes back a revocation": new(scene).takes("a", "1", 10, 100).acts(tenure.Revoke, "9", "", 50, 150).rewinds(60, 70).
			renews("a", "1", 80, 85, record(OK, "1", 100, 10, 82+ttl, 82)),
		"a failover that leaves a reservation": new(scene).acts(tenure.Reserve, "9", "b", 50, 150).rewinds(60, 70).
			add("c", 80, 85, byHandCall(tenure.Acquire, "3", "c"), reserved(150, 50, 82)).takesAs("b", "2", 90, 190),
	} {
		t.Run(name, func(t *testing.T) { expect(t, s.ops, Scope{}) })
	}
}

// The operator may be at fault, or the store.
func TestActsThatBreakALawAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		s    *scene
		laws []Law
	}{
		"a renewal after a takeover": {new(scene).takes("a", "1", 10, 100).acts(tenure.Takeover, "9", "operator", 500, 500).
			renews("a", "1", 520, 525, record(OK, "1", 100, 10, 522+ttl, 522)), []Law{Register}},
		"a key that is held after it was revoked": {new(scene).takes("a", "1", 10, 100).acts(tenure.Revoke, "9", "", 500, 500).
			acquires("b", "2", 510, 515, record(Held, "1", 100, 10, 10+ttl, 512)), []Law{Register}},
		"a reservation that another takes": {new(scene).acts(tenure.Reserve, "9", "b", 500, 500).takesAs("c", "3", 600, 600), []Law{Register}},
		"a reservation that is denied":     {new(scene).acts(tenure.Reserve, "9", "b", 500, 500).add("operator", 510, 515, byHandCall(tenure.Reserve, "9", "b"), record(NotOwned, "9", 500, 500, 500+ttl, 512)), []Law{Register}},
		"an act that burns no token":       {new(scene).takes("a", "1", 10, 100).acts(tenure.Takeover, "9", "operator", 500, 100), []Law{Tokens, Register}},
		"a revocation that is refused": {new(scene).takes("a", "1", 10, 100).
			add("operator", 500, 505, byHandCall(tenure.Revoke, "9", ""), record(Held, "1", 100, 10, 10+ttl, 502)), []Law{Register}},
		"two holders, and an operator who acted before": {new(scene).acts(tenure.Revoke, "9", "", 5, 50).takes("a", "1", 10, 100).takes("b", "2", 500, 500).holds("a", "1", 600, 100), []Law{Register, Exclusion}},
		"two holders, and an operator who acts after":   {new(scene).takes("a", "1", 10, 100).takes("b", "2", 500, 500).holds("a", "1", 600, 100).acts(tenure.Revoke, "9", "", 650, 700), []Law{Register, Exclusion}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, c.s.ops, Scope{}, c.laws...) })
	}
}
