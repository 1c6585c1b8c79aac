package worktest

import (
	"context"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/ledger"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/work"
)

// place is an empty ledger by a law, under a clock that the suite moves; wrap may be nil.
func place(law ledger.Law, wrap func(l, base *ledger.Ledger) work.Ledger) func(testing.TB) Harness {
	return func(testing.TB) Harness {
		clock := storetest.NewClock()
		base := ledger.New(clock.Now, law)
		return Harness{
			Open: func(testing.TB) work.Ledger {
				if wrap != nil {
					return wrap(base.Open(), base)
				}
				return base.Open()
			},
			Within: func(ctx context.Context, _ work.Ledger, do func(work.Operations) error) error {
				return base.Within(ctx, do)
			},
			Advance:  clock.Advance,
			Patience: 100e6, // what is broken may never happen
		}
	}
}

// TestASoundLedgerPasses: what is caught below is caught for its flaw, and not because the ledger it is in fails anyway.
func TestASoundLedgerPasses(t *testing.T) {
	Run(t, func(tb testing.TB) Harness {
		h := place(ledger.Sound(), nil)(tb)
		h.Patience = 0 // nothing is expected to take long
		return h
	})
}

// TestBrokenLedgersAreCaught: every flaw is noticed, and in the behaviour it is a flaw of.
func TestBrokenLedgersAreCaught(t *testing.T) {
	groups := map[string]group{}
	for _, g := range suite() {
		groups[g.name] = g
	}
	seen := map[string]bool{}
	for _, f := range flaws() {
		if seen[f.name] {
			t.Errorf("two flaws are called %q", f.name)
		}
		seen[f.name] = true
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			g, ok := groups[f.group]
			if !ok {
				t.Fatalf("there is no group %q", f.group)
			}
			law := ledger.Sound()
			if f.spoil != nil {
				f.spoil(&law)
			}
			for _, c := range g.checks {
				said := record(t, c, place(law, f.wrap))
				if len(said) > 0 {
					if strings.HasPrefix(said[len(said)-1], "panic: ") {
						t.Errorf("the suite ended in %q: %s", c.name, said[len(said)-1])
					}
					t.Logf("caught by %q: %s", c.name, said[0])
					return
				}
			}
			t.Errorf("a ledger that %s passes all of %q", f.name, f.group)
		})
	}
}

// TestEveryGroupCatchesSomething: a behaviour whose checks no flaw can fail would be decoration.
func TestEveryGroupCatchesSomething(t *testing.T) {
	caught := map[string]bool{}
	for _, f := range flaws() {
		caught[f.group] = true
	}
	for _, g := range suite() {
		if !caught[g.name] && g.name != "sequences" { // which repeats what the others try, at random
			t.Errorf("no broken ledger is there for %q", g.name)
		}
	}
}
