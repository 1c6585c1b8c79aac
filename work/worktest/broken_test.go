package worktest

import (
	"context"
	"testing"

	"github.com/croft-dev/croft/internal/ledger"
	"github.com/croft-dev/croft/internal/suite"
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
	var broken []suite.Flaw[*trial]
	for _, f := range flaws() {
		law := ledger.Sound()
		if f.spoil != nil {
			f.spoil(&law)
		}
		broken = append(broken, suite.Flaw[*trial]{Name: f.name, Group: f.group, Begin: begun(place(law, f.wrap))})
	}
	suite.Caught(t, groups(), broken, "sequences")
}
