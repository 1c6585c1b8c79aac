package worktest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/work"
)

func races() []check {
	return []check{
		{"no item is granted to two claims", func(t *trial) {
			n := t.many(200, 60)
			var adds []work.Request
			for range n {
				adds = append(adds, added("q"))
			}
			t.apply(t.ledger, adds...)
			ledgers := []work.Ledger{t.ledger, t.open(), t.open()}
			var mu sync.Mutex
			got := map[work.ID]int{}
			suite.Together(8, func(i int) {
				for {
					c := claimOf("q")
					c.Limit = 1 + i
					items, err := ledgers[i%3].Claim(t.ctx, c)
					if err != nil {
						t.Errorf("Claim: %v", err)
						return
					}
					if len(items) == 0 {
						return
					}
					mu.Lock()
					twice := false
					for _, it := range items {
						got[it.ID]++
						twice = twice || got[it.ID] > 1
					}
					mu.Unlock()
					if twice { // a broken ledger might go on for ever
						return
					}
				}
			})
			for _, it := range t.claim(work.Claim{
				Queues: []string{"q"}, Limit: work.MaxClaim, Secret: claimOf("q").Secret, Owner: "last",
				TTL: long,
			}) {
				got[it.ID]++ // left over because others had locked it
			}
			for id, times := range got {
				if times != 1 {
					t.Fatalf("item %s was granted %d times", id, times)
				}
			}
			if len(got) != n {
				t.Fatalf("%d of %d items were granted", len(got), n)
			}
		}},
		{"one idempotency key, many who add", func(t *trial) {
			ledgers := []work.Ledger{t.ledger, t.open(), t.open(), t.open()}
			for range t.many(20, 5) {
				base := added("q")
				base.Unique = string(base.ID)
				var mu sync.Mutex
				ids := map[work.ID]int{}
				suite.Together(8, func(i int) {
					req := base
					req.ID = work.NewID()
					a := ledgers[i%4].Apply(t.ctx, []work.Request{req})[0]
					if a.Err != nil {
						t.Errorf("add: %v", a.Err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					ids[a.Item.ID]++
				})
				if len(ids) != 1 {
					t.Fatalf("one key has %d items", len(ids))
				}
			}
		}},
		{"one of complete, reassign and requeue wins, and the others know", func(t *trial) {
			ledgers := []work.Ledger{t.ledger, t.open(), t.open()}
			for i := range t.many(40, 8) {
				h := t.lapsed(fmt.Sprintf("race/%d", i))
				done := h.by(work.Complete)
				done.Effects = []work.Emission{{Name: "x"}}
				requests := []work.Request{done, hand(work.Reassign, h.ID), requeue(h.Item)}
				answers := make([]work.Answer, 3)
				suite.Together(3, func(i int) { answers[i] = ledgers[i].Apply(t.ctx, requests[i:i+1])[0] })
				it := t.get(h.ID)
				completed := answers[0].Err == nil
				if completed != (it.State == work.Done) || completed != (len(t.effectsOf(h.ID)) == 1) {
					t.Fatalf("complete was answered %v, and the item is %s with %d effects", answers[0].Err,
						it.State, len(t.effectsOf(h.ID)))
				}
				if !completed && !errors.Is(answers[0].Err, fence.ErrStale) {
					t.Fatalf("complete: %v", answers[0].Err)
				}
				for j, a := range answers[1:] {
					if a.Err == nil && completed || errors.Is(a.Err, work.ErrUnknown) {
						t.Fatalf("%s beside a completion: %v", requests[j+1].Verb, a.Err)
					}
				}
			}
		}},
		{"batches that meet in other orders end", func(t *trial) {
			n := t.many(30, 12)
			c := claimOf("q")
			c.Limit = n
			var adds []work.Request
			for range n {
				adds = append(adds, added("q"))
			}
			t.apply(t.ledger, adds...)
			items := t.claim(c)
			ledgers := []work.Ledger{t.ledger, t.open(), t.open(), t.open()}
			orders := make([][]int, 4)
			for i := range orders {
				orders[i] = t.rand.Perm(n)
			}
			suite.Together(4, func(i int) {
				for range t.many(10, 4) {
					var beats []work.Request
					for _, k := range orders[i] {
						beats = append(beats, held{items[k], c.Secret}.by(work.Heartbeat))
					}
					for _, a := range ledgers[i].Apply(t.ctx, beats) {
						if a.Err != nil {
							t.Errorf("heartbeat: %v", a.Err)
							return
						}
					}
				}
			})
		}},
		{"no effect is taken twice", func(t *trial) {
			var names []string
			for i := range 26 {
				names = append(names, string(rune('a'+i)))
			}
			t.emits("q", names...)
			d := dispatcher(1)
			ledgers := []work.Ledger{t.ledger, t.open()}
			var mu sync.Mutex
			got := map[work.EffectID]int{}
			suite.Together(4, func(i int) {
				for {
					effects, err := ledgers[i%2].Take(t.ctx, work.Taking{Stamp: d, Limit: 3, Hold: long})
					if err != nil {
						t.Errorf("Take: %v", err)
					}
					mu.Lock()
					twice := false
					for _, e := range effects {
						got[e.EffectID]++
						twice = twice || got[e.EffectID] > 1
					}
					mu.Unlock()
					if len(effects) == 0 || twice {
						return
					}
				}
			})
			for _, e := range t.take(work.Taking{Stamp: d, Limit: 100, Hold: long}) {
				got[e.EffectID]++
			}
			for id, n := range got {
				if n != 1 {
					t.Fatalf("effect %s was taken %d times", id, n)
				}
			}
			if len(got) != len(names) {
				t.Fatalf("%d of %d effects were taken", len(got), len(names))
			}
		}},
	}
}
