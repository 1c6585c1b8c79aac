package worktest

import (
	"context"
	"testing"

	"github.com/croft-dev/croft/internal/ledger"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/work"
)

// place makes an empty ledger with a flaw, or none, under a clock that the
// suite moves.
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
		Patience: 100e6, // a broken ledger may never do it
	}
}

// TestASoundLedgerPasses: the ledger without a flaw passes. So the checks below
// fail because of the flaws.
func TestASoundLedgerPasses(t *testing.T) {
	Run(t, func(tb testing.TB) Harness {
		h := flaw{}.place(tb)
		h.Patience = 0 // nothing is expected to take long
		return h
	})
}

// TestBrokenLedgersAreCaught: the suite notices every flaw, in the group to
// which it belongs.
func TestBrokenLedgersAreCaught(t *testing.T) {
	var broken []suite.Flaw[*trial]
	for _, f := range flaws() {
		broken = append(broken, suite.Flaw[*trial]{Name: f.name, Group: f.group, Begin: begun(f.place)})
	}
	suite.Caught(t, groups(), broken, "sequences")
}
