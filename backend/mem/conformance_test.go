package mem_test

import (
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
)

// place is an empty store in memory. The suite moves its clock.
func place(testing.TB) storetest.Harness {
	clock := storetest.NewClock()
	return harness(mem.New(&mem.Options{Now: clock.Now}), clock.Advance)
}

func harness(base *mem.Store, advance func(time.Duration)) storetest.Harness {
	return storetest.Harness{
		Open: func(_ testing.TB, o storetest.Options) store.Store {
			return base.Open(&mem.Options{Retention: o.Retention})
		},
		Wipe:    func(testing.TB) { base.Wipe() },
		Advance: advance,
	}
}

// TestConformance runs the whole suite of lease stores.
func TestConformance(t *testing.T) { storetest.Run(t, place) }

// TestConformanceOnTheSystemClock does the same without a clock that can be
// moved. The suite tries stores with a server in this way.
func TestConformanceOnTheSystemClock(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		h := harness(mem.New(nil), nil)
		h.Slow = true
		return h
	})
}
