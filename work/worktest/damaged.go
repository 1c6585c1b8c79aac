package worktest

import (
	"errors"
	"strings"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func damaged() []check {
	on := func(name string, run func(t *trial, spoilt held, others []held)) check {
		return check{name, func(t *trial) {
			if t.Damage == nil { // the items of such a ledger cannot be damaged
				return
			}
			c := claimOf("q")
			c.Limit = 6
			for range c.Limit {
				t.must(added("q"))
			}
			var all []held
			for _, it := range t.claim(c) {
				all = append(all, held{it, c.Secret})
			}
			t.Damage(t.TB, t.ledger, all[0].ID, work.Running)
			run(t, all[0], all[1:])
		}}
	}
	return []check{
		on("nothing is decided from a damaged item, and the others of its batch go on", func(
			t *trial, spoilt held, others []held,
		) {
			requests := []work.Request{spoilt.by(work.Report)}
			for _, h := range others {
				requests = append(requests, h.by(work.Report))
			}
			for i, a := range t.apply(t.ledger, requests...) {
				if bad := i == 0; bad != errors.Is(a.Err, work.ErrUnknown) || !bad && a.Err != nil {
					t.Errorf("report %d: %v", i, a.Err)
				}
			}
		}),
		on("a listing names a damaged item and goes on with the others", func(t *trial, spoilt held, others []held) {
			listed := 0
			var failed error
			for _, err := range t.ledger.List(t.ctx, work.Query{}) {
				if err != nil {
					failed = errors.Join(failed, err)
					continue
				}
				listed++
			}
			if listed != len(others) || failed == nil || !strings.Contains(failed.Error(), string(spoilt.ID)) {
				t.Errorf("%d items were listed, and: %v", listed, failed)
			}
		}),
		on("a claim sent again gets the others", func(t *trial, spoilt held, others []held) {
			t.claims(spoilt.secret, true, others)
		}),
		on("a damaged item keeps nobody from claiming the others", func(t *trial, spoilt held, others []held) {
			requests := []work.Request{spoilt.by(work.Release)}
			for _, h := range others {
				requests = append(requests, h.by(work.Release))
			}
			t.apply(t.ledger, requests...)
			t.Damage(t.TB, t.ledger, spoilt.ID, work.Waiting)
			secret := tenure.NewSecret()
			t.claims(secret, false, others)
			t.claims(secret, true, others)
		}),
	}
}

// claims claims one more item than there are sound ones, and expects exactly
// those.
func (t *trial) claims(secret tenure.Secret, again bool, want []held) {
	t.Helper()
	c := claimOf("q")
	c.Limit, c.Secret, c.Again = len(want)+1, secret, again
	got, err := t.ledger.Claim(t.ctx, c)
	left := map[work.ID]bool{}
	for _, h := range want {
		left[h.ID] = true
	}
	for _, it := range got {
		delete(left, it.ID)
	}
	if err != nil || len(got) != len(want) || len(left) > 0 {
		t.Errorf("claimed %d items, not the %d that are sound: %v", len(got), len(want), err)
	}
}
