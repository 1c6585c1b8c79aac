package mem_test

import (
	"context"
	"errors"
	"testing"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/worktest"
)

func ledgerHarness(base *mem.Ledger) worktest.Harness {
	return worktest.Harness{
		Open: func(testing.TB) work.Ledger { return base.Open() },
		Within: func(ctx context.Context, l work.Ledger, do func(work.Operations) error) error {
			return l.(*mem.Ledger).Within(ctx, do)
		},
	}
}

// TestLedgerConformance runs the whole suite of ledgers. The suite moves the
// clock.
func TestLedgerConformance(t *testing.T) {
	worktest.Run(t, func(testing.TB) worktest.Harness {
		clock := storetest.NewClock()
		h := ledgerHarness(mem.NewLedger(&mem.Options{Now: clock.Now}))
		h.Advance = clock.Advance
		return h
	})
}

// TestLedgerConformanceOnTheSystemClock does the same without a clock that can
// be moved. The suite tries ledgers with a server in this way.
func TestLedgerConformanceOnTheSystemClock(t *testing.T) {
	worktest.Run(t, func(testing.TB) worktest.Harness {
		h := ledgerHarness(mem.NewLedger(nil))
		h.Slow = true
		return h
	})
}

// TestOneNameIsOneLedger: callers that open the same URL see the same items,
// even if others close theirs.
func TestOneNameIsOneLedger(t *testing.T) {
	ctx := t.Context()
	open := func(url string) work.Ledger {
		l, err := work.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one, two, other := open("mem://ledger"), open("mem://ledger"), open("mem://another")
	id := work.NewID()
	if a := one.Apply(ctx, []work.Request{{Verb: work.Add, ID: id, Queue: "q"}}); a[0].Err != nil {
		t.Fatal(a[0].Err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Get(ctx, id); err != nil {
		t.Errorf("a second handle on the same name: %v", err)
	}
	if _, err := other.Get(ctx, id); !errors.Is(err, work.ErrNotFound) {
		t.Errorf("another name: %v, want not found", err)
	}
	if _, err := work.Open(ctx, "mem://name/path"); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a bad URL: %v, want invalid", err)
	}
}
