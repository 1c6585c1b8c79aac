package chaos

import (
	"context"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/proof/history"
)

// Half of the clients use one store and half another, and all believe that
// there is only one. The history must show it, and the page must draw it. Still
// no update may be lost: the guards decide which writes count, whatever the
// store does.
func TestASplitStoreIsFoundAndGuardsStillHold(t *testing.T) {
	t.Parallel()
	b, _ := Find("dir")
	b.start = func(_ context.Context, s *stand) (*testbed, error) {
		folder := s.TempDir()
		var asked atomic.Int64
		return &testbed{stand: s, urls: func([]string) (string, string) {
			return filepath.Join(folder, "store"+strconv.Itoa(int(asked.Add(1)%2))), folder
		}}, nil
	}
	o := slice(b)
	o.Clients, o.Operators, o.Keys, o.For = 6, -1, 2, 5*time.Minute
	o.until = func(ops []history.Op) bool {
		found := laws(history.Check(ops, history.Scope{Unguarded: true}))
		return found[history.Register] > 0 && found[history.Exclusion] > 0
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("seed %d: %v", o.Seed, err)
	}
	found := laws(r.Violations)
	if found[history.Register] == 0 || found[history.Exclusion] == 0 || len(r.Page) == 0 {
		t.Errorf("seed %d: %d updates, found only %v", o.Seed, r.Updates, found)
	}
	for _, law := range []history.Law{history.Kept, history.Once, history.Order, history.NoFalse, history.NothingWas} {
		if found[law] > 0 {
			t.Errorf("seed %d: broken by the guards: %v", o.Seed, r.Violations)
		}
	}
}

func laws(list []history.Violation) map[history.Law]int {
	found := map[history.Law]int{}
	for _, v := range list {
		found[v.Law]++
	}
	return found
}
