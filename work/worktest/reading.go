package worktest

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/work"
)

func reading() []check {
	return []check{
		{"an unknown item is named", func(t *trial) {
			if _, err := t.ledger.Get(t.ctx, work.NewID()); !errors.Is(err, work.ErrNotFound) {
				t.Fatalf("Get of an unknown id: %v", err)
			}
			if _, err := t.ledger.Get(t.ctx, "x"); !errors.Is(err, work.ErrNotFound) &&
				!errors.Is(err, work.ErrInvalid) {
				t.Fatalf("Get of a bad id: %v", err)
			}
		}},
		{"lists are filtered, ordered and paged", func(t *trial) {
			t.mixed()
			all := t.all()
			for _, q := range []work.Query{
				{},
				{Queue: "mixed/a"},
				{Queue: "none"},
				{States: []work.State{work.Waiting}},
				{States: []work.State{work.Done, work.Dead}, Queue: "mixed/b"},
				{Owner: "ann"},
				{Owner: "nobody"},
				{Newest: true},
				{Limit: 3},
				{Newest: true, Limit: 2, Queue: "mixed/a"},
			} {
				var want []work.ID
				for id, it := range all {
					if q.Selects(it) {
						want = append(want, id)
					}
				}
				slices.Sort(want)
				if q.Newest {
					slices.Reverse(want)
				}
				if q.Limit > 0 {
					want = want[:min(q.Limit, len(want))]
				}
				var got []work.ID
				for _, it := range collect(t, "List", t.ledger.List(t.ctx, q)) {
					got = append(got, it.ID)
					if d := suite.Differ(listed(all[it.ID]), listed(it)); d != "" {
						t.Fatalf("%+v: an item listed is not the one kept: %s", q, d)
					}
				}
				if !slices.Equal(want, got) {
					t.Fatalf("%+v: got %d items, want %d, or in another order", q, len(got), len(want))
				}
			}
			for _, newest := range []bool{false, true} { // page by page
				var got []work.ID
				q := work.Query{Newest: newest, Limit: 4}
				for {
					page := collect(t, "List", t.ledger.List(t.ctx, q))
					if len(page) == 0 {
						break
					}
					for _, it := range page {
						got = append(got, it.ID)
					}
					q.After = got[len(got)-1]
				}
				want := slices.Sorted(maps.Keys(all))
				if newest {
					slices.Reverse(want)
				}
				if !slices.Equal(want, got) {
					t.Fatalf("page by page, newest %v: got %d of %d items", newest, len(got), len(want))
				}
			}
		}},
		{"a reader may stop", func(t *trial) {
			t.mixed()
			for range t.ledger.List(t.ctx, work.Query{}) {
				break
			}
			for range t.ledger.Effects(t.ctx, work.EffectQuery{}) {
				break
			}
			t.must(added("q"))
		}},
		{"effects are filtered, ordered and paged", func(t *trial) {
			t.mixed()
			all := t.allEffects()
			now := t.now()
			for _, q := range []work.EffectQuery{
				{},
				{Queue: "mixed/a"},
				{States: []work.EffectState{work.Pending}},
				{States: []work.EffectState{work.Unknown, work.Sent}},
				{Limit: 2},
				{Queue: "none"},
			} {
				var want []work.EffectID
				for id, e := range all {
					if q.Selects(e, now) {
						want = append(want, id)
					}
				}
				slices.SortFunc(want, work.EffectID.Compare)
				if q.Limit > 0 {
					want = want[:min(q.Limit, len(want))]
				}
				var got []work.EffectID
				for _, e := range collect(t, "Effects", t.ledger.Effects(t.ctx, q)) {
					got = append(got, e.EffectID)
				}
				if !slices.Equal(want, got) {
					t.Fatalf("%+v: got %v, want %v", q, got, want)
				}
			}
			var got int
			q := work.EffectQuery{Limit: 2}
			for {
				page := collect(t, "Effects", t.ledger.Effects(t.ctx, q))
				if len(page) == 0 {
					break
				}
				got += len(page)
				q.After = page[len(page)-1].EffectID
			}
			if got != len(all) {
				t.Fatalf("page by page: %d of %d effects", got, len(all))
			}
		}},
		{"bad queries are named", func(t *trial) {
			for _, q := range []work.Query{
				{Limit: -1},
				{States: []work.State{"asleep"}},
				{After: "x"},
				{Queue: "a\x00b"},
				{Queue: "\xff"},
				{Owner: "ann\x00"},
				{Owner: "\xff"},
			} {
				refuses(t, q, t.ledger.List(t.ctx, q))
			}
			for _, q := range []work.EffectQuery{
				{Limit: -1},
				{Item: "x"},
				{Queue: "a\x00b"},
				{Queue: "\xff"},
				{After: work.EffectID{Item: work.NewID(), Name: "x\x00"}},
			} {
				refuses(t, q, t.ledger.Effects(t.ctx, q))
			}
			for _, q := range []work.RefusalQuery{{Limit: -1}, {Item: "x"}, {Queue: "a\x00b"}, {Queue: "\xff"}} {
				refuses(t, q, t.ledger.Refusals(t.ctx, q))
			}
			if _, err := t.ledger.Stats(t.ctx, "a\x00b"); !errors.Is(err, work.ErrInvalid) {
				t.Fatalf("Stats of a queue that cannot be: %v", err)
			}
			if _, err := t.ledger.Take(t.ctx, work.Taking{
				Stamp: dispatcher(1), Limit: 1, Hold: long, To: []string{"x\x00"},
			}); !errors.Is(err, work.ErrInvalid) {
				t.Fatalf("Take for a destination that cannot be: %v", err)
			}
		}},
		{"stats count what is there", func(t *trial) {
			t.mixed()
			items, effects, now := t.all(), t.allEffects(), t.now()
			by := map[string]*work.Stats{}
			for _, it := range items {
				if by[it.Queue] == nil {
					by[it.Queue] = &work.Stats{Queue: it.Queue}
				}
				by[it.Queue].Count(it, now)
			}
			for _, e := range effects {
				by[e.Queue].CountEffect(e)
			}
			for _, r := range collect(t, "Refusals", t.ledger.Refusals(t.ctx, work.RefusalQuery{})) {
				by[r.Queue].Refusals++
			}
			var want []work.Stats
			for _, s := range by {
				want = append(want, *s)
			}
			slices.SortFunc(want, func(a, b work.Stats) int { return cmp.Compare(a.Queue, b.Queue) })
			got, err := t.ledger.Stats(t.ctx, "")
			if err != nil {
				t.Fatalf("Stats: %v", err)
			}
			if d := suite.Differ(want, got); d != "" {
				t.Fatalf("Stats: %s", d)
			}
			one, err := t.ledger.Stats(t.ctx, "mixed/a")
			if err != nil || len(one) != 1 || one[0].Queue != "mixed/a" {
				t.Fatalf("Stats of one queue: %+v, %v", one, err)
			}
			if none, err := t.ledger.Stats(t.ctx, "none"); err != nil || len(none) != 0 {
				t.Fatalf("Stats of no queue: %+v, %v", none, err)
			}
		}},
		{"a backlog counts what is open", func(t *trial) {
			surveyor, can := t.ledger.(work.Surveyor)
			if !can {
				return
			}
			t.mixed()
			t.givenUp()
			for _, stallAfter := range []time.Duration{0, long / 2, 1000 * long} {
				got, err := surveyor.Backlog(t.ctx, stallAfter)
				if errors.Is(err, errors.ErrUnsupported) {
					return
				}
				if err != nil {
					t.Fatalf("Backlog: %v", err)
				}
				want := work.BacklogOf(maps.Values(t.all()), maps.Values(t.allEffects()), got.Now, stallAfter)
				if d := suite.Differ(want, got); d != "" {
					t.Fatalf("Backlog: %s", d)
				}
				if len(got.Queues) < 2 || len(got.Destinations) < 2 {
					t.Fatalf("Backlog: %d queues and %d destinations; there are more",
						len(got.Queues), len(got.Destinations))
				}
			}
		}},
	}
}

// refuses checks that a query yields one error, that it is invalid, and nothing
// else.
func refuses[T any](t *trial, q any, seq iter.Seq2[T, error]) {
	t.Helper()
	n := 0
	for _, err := range seq {
		if n++; !errors.Is(err, work.ErrInvalid) || n > 1 {
			t.Fatalf("%+v: %v", q, err)
		}
	}
	if n == 0 {
		t.Fatalf("%+v was taken", q)
	}
}

// mixed makes items in all states in two queues, with effects and refusals.
// None of them changes by itself for an hour.
func (t *trial) mixed() {
	t.Helper()
	for _, q := range []string{"mixed/a", "mixed/b"} {
		for _, s := range work.States {
			// The items share a queue, so the waiting ones are added last:
			// otherwise they would be claimed.
			if s != work.Waiting {
				t.inState(s, q)
			}
		}
		t.emits(q, "x", "y")
		h := t.running(q)
		t.must(hand(work.Cancel, h.ID))
		t.step(h.by(work.Complete))
		later := added(q)
		later.Delay = 100 * long
		t.must(later)
	}
	got := t.take(work.Taking{Stamp: dispatcher(1), Limit: 3, Hold: 100 * long})
	t.settle(work.Settlement{Effect: got[0].EffectID, Attempt: 1, State: work.Sent, Actor: "olga", Note: "seen"})
	for _, q := range []string{"mixed/a", "mixed/b"} {
		t.must(added(q))
		t.must(added(q))
	}
}

// givenUp makes two effects. It gives one up, and leaves one orphaned.
func (t *trial) givenUp() {
	t.Helper()
	t.emits("mixed/a", "z", "z2")
	for i, hold := range []time.Duration{time.Millisecond, 100 * long} {
		got := t.take(work.Taking{Stamp: dispatcher(2 + i), Limit: 1, Hold: hold})
		if hold > long {
			t.settle(work.Settlement{
				Effect: got[0].EffectID, Attempt: 1, State: work.Failed, Actor: "olga", Note: "nobody there",
			})
		}
	}
}

// listed returns the part of an item that every list has.
func listed(it work.Item) work.Item {
	it.Payload, it.Checkpoint, it.Result, it.Record.History = nil, nil, nil, nil
	return it
}
