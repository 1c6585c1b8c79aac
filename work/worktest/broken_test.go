package worktest

import (
	"context"
	"testing"

	"github.com/croft-dev/croft/internal/ledger"
	"github.com/croft-dev/croft/internal/suite"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/work"
)

// place is an empty ledger with a flaw, or none, under a clock that the suite moves.
func (f flaw) place(testing.TB) Harness {
	law := ledger.Sound()
	if f.spoil != nil {
		f.spoil(&law)
	}
	clock := storetest.NewClock()
	bad := f.rot
	base := ledger.New(clock.Now, bad.under(law))
	return Harness{
		Open: func(testing.TB) work.Ledger {
			if f.wrap != nil {
				return f.wrap(base.Open(), base)
			}
			return rotten{base.Open(), &bad}
		},
		Within: func(ctx context.Context, _ work.Ledger, do func(work.Operations) error) error {
			return base.Within(ctx, do)
		},
		Damage: func(_ testing.TB, _ work.Ledger, id work.ID, _ work.State) {
			bad.ids = append(bad.ids, id)
		},
		Advance:  clock.Advance,
		Patience: 100e6, // what is broken may never happen
	}
}

// TestASoundLedgerPasses: what is caught below is caught for its flaw, and not because the ledger it is in fails anyway.
func TestASoundLedgerPasses(t *testing.T) {
	Run(t, func(tb testing.TB) Harness {
		h := flaw{}.place(tb)
		h.Patience = 0 // nothing is expected to take long
		return h
	})
}

// TestBrokenLedgersAreCaught: every flaw is noticed, and in the behaviour it is a flaw of.
func TestBrokenLedgersAreCaught(t *testing.T) {
	var broken []suite.Flaw[*trial]
	for _, f := range flaws() {
		broken = append(broken, suite.Flaw[*trial]{Name: f.name, Group: f.group, Begin: begun(f.place)})
	}
	suite.Caught(t, groups(), broken, "sequences")
}
