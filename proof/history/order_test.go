package history

import "testing"

// twoOwners is a scene with two owners: a writes under token 100, then b under
// token 2000.
func twoOwners() *scene {
	return new(scene).takes("a", "1", 10, 100).raises("a", "1", 12, 14, 100).
		reads("a", 16, "").writes("a", "1", 20, 25, 100, 1, "a.1", "", OK).
		takes("b", "2", 10+ttl, 2000).raises("b", "2", 1012, 1014, 2000).
		reads("b", 1016, "a.1").writes("b", "2", 1020, 1025, 2000, 1, "b.1", "a.1", OK)
}

// Writes may be refused, repeated or of unknown outcome.
func TestLawfulWritesAreAccepted(t *testing.T) {
	stale := Result{Outcome: Stale, Token: 2000, Grant: id("2")}
	late := Call{Kind: Write, Grant: id("1"), Token: 100, Seq: 2, Update: "a.2", Prior: "a.1"}
	for name, s := range map[string]*scene{
		"one after the other":                     twoOwners().reads("judge", 1100, "b.1"),
		"an old owner that is refused":            twoOwners().add("a", 1050, 1060, late, stale).reads("judge", 1100, "b.1"),
		"a write that nobody confirmed":           twoOwners().writes("b", "2", 1030, 1040, 2000, 2, "b.2", "b.1", Unknown).reads("judge", 1100, "b.1"),
		"a write that happened all the same":      twoOwners().writes("b", "2", 1030, Never, 2000, 2, "b.2", "b.1", "").reads("judge", 1100, "b.2"),
		"a write that was sent again":             twoOwners().writes("b", "2", 1030, 1040, 2000, 2, "b.2", "b.1", Unknown).writes("b", "2", 1050, 1060, 2000, 2, "b.2", "b.1", Repeated).reads("judge", 1100, "b.2"),
		"refused in the end, made before":         twoOwners().writes("a", "1", 30, 40, 100, 2, "a.2", "a.1", Unknown).add("a", 1050, 1060, late, stale).reads("judge", 1100, "b.1"),
		"writes that overlap":                     new(scene).takes("a", "1", 10, 100).takes("b", "2", 2000, 2000).raises("b", "2", 2010, 2050, 2000).writes("a", "1", 2015, 2045, 100, 1, "a.1", "", OK).reads("judge", 2100, "a.1"),
		"writes that the resource itself reports": twoOwners().reads("judge", 1100, "b.1").add("judge", 1110, 1110, Call{Kind: Applied}, Result{Outcome: OK, Updates: []string{"a.1", "b.1"}}),
	} {
		t.Run(name, func(t *testing.T) { expect(t, s.ops, Scope{}) })
	}
}

func TestUnlawfulWritesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		s    *scene
		laws []Law
	}{
		"an old owner that is admitted":               {twoOwners().writes("a", "1", 1050, 1060, 100, 2, "a.2", "b.1", OK).reads("judge", 1100, "a.2"), []Law{Order}},
		"an old owner that is raised":                 {twoOwners().raises("a", "1", 1050, 1060, 100).reads("judge", 1100, "b.1"), []Law{Order}},
		"an update that is lost":                      {twoOwners().writes("b", "2", 1030, 1040, 2000, 2, "b.2", "b.1", OK).reads("judge", 1100, "b.1"), []Law{Kept}},
		"an update that was overwritten":              {twoOwners().writes("a", "1", 1050, 1060, 100, 2, "a.2", "a.1", OK).reads("judge", 1100, "a.2"), []Law{Kept, Order}},
		"a refused write that counts":                 {twoOwners().add("a", 1050, 1060, Call{Kind: Write, Grant: id("1"), Token: 100, Seq: 2, Update: "a.2", Prior: "b.1"}, Result{Outcome: Stale, Token: 2000}).reads("judge", 1100, "a.2"), []Law{NothingWas, Order}},
		"an update that nobody wrote":                 {twoOwners().reads("judge", 1100, "x.1"), []Law{Kept}},
		"two grants under one token":                  {twoOwners().writes("c", "3", 1050, 1060, 2000, 1, "c.1", "b.1", OK).reads("judge", 1100, "c.1"), []Law{Order}},
		"a number that does not rise":                 {twoOwners().writes("b", "2", 1050, 1060, 2000, 1, "b.2", "b.1", OK).reads("judge", 1100, "b.2"), []Law{Order}},
		"refused for a token nobody has":              {twoOwners().add("b", 1050, 1060, Call{Kind: Write, Grant: id("2"), Token: 2000, Seq: 2, Update: "b.2", Prior: "b.1"}, Result{Outcome: Stale, Token: 3000}).reads("judge", 1100, "b.1"), []Law{NoFalse}},
		"refused for an older token":                  {twoOwners().add("b", 1050, 1060, Call{Kind: Write, Grant: id("2"), Token: 2000, Seq: 2, Update: "b.2", Prior: "b.1"}, Result{Outcome: Stale, Token: 100}).reads("judge", 1100, "b.1"), []Law{NoFalse}},
		"an update that was applied twice":            {twoOwners().reads("judge", 1100, "b.1").add("judge", 1110, 1110, Call{Kind: Applied}, Result{Outcome: OK, Updates: []string{"a.1", "b.1", "b.1"}}), []Law{Once}},
		"an update that was never applied and counts": {twoOwners().reads("judge", 1100, "b.1").add("judge", 1110, 1110, Call{Kind: Applied}, Result{Outcome: OK, Updates: []string{"b.1"}}), []Law{Kept}},
		"an update made from what was made of it":     {new(scene).takes("a", "1", 10, 100).writes("a", "1", 20, 25, 100, 1, "a.1", "a.2", OK).writes("a", "1", 30, 35, 100, 2, "a.2", "a.1", OK).reads("judge", 50, "a.2"), []Law{Once, Order}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, c.s.ops, Scope{}, c.laws...)
			if found := laws(Check(c.s.ops, Scope{Unguarded: true})); len(found) > 0 {
				t.Errorf("without guards: %v", found)
			}
		})
	}
}

// Forks must find a loss while the clients still write.
func TestForksTellOfLossesBeforeTheEnd(t *testing.T) {
	s := twoOwners()
	if n := Forks("k", s.ops); n != 0 {
		t.Errorf("%d forks in a chain", n)
	}
	s.writes("a", "1", 1050, 1060, 100, 2, "a.2", "a.1", OK)
	if n := Forks("k", s.ops); n != 1 {
		t.Errorf("%d forks where two were made from one", n)
	}
}
