package worktest

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/work"
)

func pruning() []check {
	// Where the clock cannot be moved, the check waits for a tiny retention.
	soon := func(t *trial) time.Duration {
		if t.Advance == nil {
			return time.Microsecond
		}
		return long
	}
	return []check{
		{"finished items go after their retention, live ones stay", func(t *trial) {
			ids := map[work.State]work.ID{}
			for _, s := range work.States {
				ids[s] = t.inState(s, "pruned/"+string(s))
			}
			r := work.Retention{Done: soon(t), Dead: work.Never, Refusals: work.Never}
			if t.Advance != nil {
				if p := t.prune(r, 100); p.Items != 0 {
					t.Fatalf("%d items were forgotten before their retention", p.Items)
				}
			}
			t.pass(t.now().Add(soon(t) + time.Millisecond))
			if p := t.prune(r, 100); p.Items != 2 {
				t.Fatalf("%d items were forgotten, want the one that is done and the one cancelled", p.Items)
			}
			r.Dead = soon(t)
			if p := t.prune(r, 100); p.Items != 1 {
				t.Fatalf("%d items were forgotten, want the dead one", p.Items)
			}
			for s, id := range ids {
				if gone := t.get(id).IsZero(); gone != s.Finished() {
					t.Fatalf("the %s item: forgotten is %v", s, gone)
				}
			}
		}},
		{"an effect that is not settled keeps its item", func(t *trial) {
			id := t.emits("q", "x", "y")
			t.pass(t.now().Add(soon(t) + time.Millisecond))
			r := work.Retention{Done: soon(t)}
			d := dispatcher(1)
			for range 2 {
				if p := t.prune(r, 100); p.Items != 0 || len(t.effectsOf(id)) != 2 {
					t.Fatalf("an item with pending effects was forgotten")
				}
				got := t.take(work.Taking{Stamp: d, Limit: 1, Hold: long})
				if p := t.prune(r, 100); p.Items != 0 {
					t.Fatalf("an item with an unknown effect was forgotten")
				}
				t.settle(work.Settlement{
					Effect: got[0].EffectID, Attempt: 1, Stamp: d, State: pick(t, work.Sent, work.Failed),
				})
			}
			if p := t.prune(r, 100); p.Items != 1 || len(t.effectsOf(id)) != 0 {
				t.Fatalf("an item with settled effects: %d forgotten, %d effects left", p.Items, len(t.effectsOf(id)))
			}
		}},
		{"a little at a time", func(t *trial) {
			for range 5 {
				t.inState(work.Done, "q")
			}
			t.pass(t.now().Add(soon(t) + time.Millisecond))
			for _, want := range []int{2, 2, 1, 0} {
				if p := t.prune(work.Retention{Done: soon(t)}, 2); p.Items != want {
					t.Fatalf("%d items were forgotten, want %d", p.Items, want)
				}
			}
		}},
		{"an idempotency key is free when its item is forgotten", func(t *trial) {
			add := added("q")
			add.Unique = "once"
			t.must(add)
			t.must(t.claimed("q", long).by(work.Complete))
			t.pass(t.now().Add(soon(t) + time.Millisecond))
			t.prune(work.Retention{Done: soon(t)}, 10)
			add.ID, add.Payload = work.NewID(), []byte("other")
			t.must(add)
		}},
		{"refusals go after theirs", func(t *trial) {
			h := t.running("q")
			t.must(hand(work.Cancel, h.ID))
			t.step(h.by(work.Complete))
			r := work.Retention{Done: work.Never, Refusals: soon(t)}
			t.pass(t.now().Add(soon(t) + time.Millisecond))
			if p := t.prune(r, 10); p.Refusals != 1 || len(t.refusalsOf(h.ID)) != 0 {
				t.Fatalf("%d refusals were forgotten, %d are left", p.Refusals, len(t.refusalsOf(h.ID)))
			}
		}},
		{"bad retentions are named", func(t *trial) {
			if _, err := t.ledger.Prune(t.ctx, work.Retention{Done: -1}, 1); !errors.Is(err, work.ErrInvalid) {
				t.Fatalf("a negative retention: %v", err)
			}
			if _, err := t.ledger.Prune(t.ctx, work.Retention{}, 0); !errors.Is(err, work.ErrInvalid) {
				t.Fatalf("a limit of 0: %v", err)
			}
		}},
	}
}

func (t *trial) prune(r work.Retention, limit int) work.Pruned {
	t.Helper()
	p, err := t.ledger.Prune(t.ctx, r, limit)
	if err != nil {
		t.Fatalf("Prune: %v", err)
	}
	return p
}
