package worktest

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/work"
)

func outbox() []check {
	return []check{
		{"due effects are taken, oldest first, and unknown from then on", func(t *trial) {
			for range 3 {
				t.emits("q", "a", "b")
				if t.Advance != nil {
					t.Advance(time.Millisecond)
				}
			}
			d := dispatcher(1)
			for _, want := range []int{4, 2, 0} {
				if got := t.take(work.Taking{Stamp: d, Limit: 4, Hold: long}); len(got) != want {
					t.Fatalf("took %d effects, want %d", len(got), want)
				}
			}
		}},
		{"only for the destinations named", func(t *trial) {
			h := t.running("q")
			req := h.by(work.Complete)
			req.Effects = []work.Emission{{Name: "one", To: "bank"}, {Name: "two", To: "mail"}, {Name: "bank"}}
			t.must(req)
			if got := t.take(work.Taking{
				Stamp: dispatcher(1), To: []string{"bank", "none"}, Limit: 10, Hold: long,
			}); len(got) != 2 {
				t.Fatalf("took %d effects, want the two to the bank", len(got))
			}
		}},
		{"in order, one at a time, for a destination that wants it", func(t *trial) {
			for range 3 {
				t.emits("q", "x", "y")
				if t.Advance != nil {
					t.Advance(time.Millisecond)
				}
			}
			d, other := dispatcher(1), dispatcher(2)
			other.Key = "work/dispatch/2"
			q := work.Taking{Stamp: d, To: []string{"x"}, Ordered: true, Limit: 5, Hold: long}
			for i := range 3 {
				got := t.take(q)
				if len(got) != 1 {
					t.Fatalf("effect %d: took %d", i, len(got))
				}
				by := q
				by.Stamp = other
				for _, of := range []work.Taking{q, by} {
					if got := t.take(of); len(got) > 0 {
						t.Fatalf("took %s while the one before it is under way", got[0].EffectID)
					}
				}
				s := work.Settlement{
					Effect: got[0].EffectID, Attempt: 1, Stamp: d, State: work.Pending, Delay: t.lapsing(),
				}
				a := t.settle(s)      // a delivery that failed holds up the others
				if t.Advance != nil { // else the time may have come already
					if got := t.take(by); len(got) > 0 {
						t.Fatalf("took %s while the one before it waits for another attempt", got[0].EffectID)
					}
				}
				t.pass(a.Effect.Ready)
				if got = t.take(q); len(got) != 1 || got[0].EffectID != s.Effect {
					t.Fatalf("took %+v, want %s again", got, s.Effect)
				}
				s.Attempt, s.State, s.Delay = 2, []work.EffectState{work.Sent, work.Failed, work.Sent}[i], 0
				t.settle(s)
			}
			if got := t.take(q); len(got) > 0 {
				t.Fatalf("took %s, though all are sent", got[0].EffectID)
			}
			t.oneUnderWay(q)
			if got := t.take(work.Taking{Stamp: d, To: []string{"y"}, Limit: 5, Hold: long}); len(got) != 3 {
				t.Fatalf("took %d effects for another destination, want 3", len(got))
			}
			two := q
			two.To = []string{"x", "y"}
			if _, err := t.ledger.Take(t.ctx, two); !errors.Is(err, work.ErrInvalid) {
				t.Fatalf("an ordered taking for two destinations: %v, want invalid", err)
			}
		}},
		{"every settlement, by the law", func(t *trial) {
			d := dispatcher(1)
			for _, first := range work.EffectStates {
				for _, second := range work.EffectStates {
					t.emits("settled/"+string(first)+"/"+string(second), "x")
					got := t.take(work.Taking{Stamp: d, Limit: 1, Hold: long, To: []string{"x"}})
					if len(got) != 1 {
						t.Fatalf("took %d effects", len(got))
					}
					s := work.Settlement{
						Effect: got[0].EffectID, Attempt: 1, Stamp: d, State: first, Error: "why",
						Delay: 2 * long,
					}
					if a := t.settle(s); a.Err != nil {
						t.Fatalf("%s: %v", first, a.Err)
					}
					if a := t.settle(s); a.Err != nil || !a.Repeated {
						t.Fatalf("%s again: %v; a repeated settlement has the effect of one", first, a.Err)
					}
					s.State, s.Error = second, "why not"
					t.settle(s)
					byHand := work.Settlement{
						Effect: s.Effect, Attempt: 1, State: second, Actor: "olga", Note: "called them",
						Delay: 2 * long,
					}
					t.settle(byHand)
					t.settle(byHand)
				}
			}
		}},
		{"a delivery that failed is taken again after its delay", func(t *trial) {
			t.emits("q", "x")
			d := dispatcher(1)
			for n := 1; n < 4; n++ {
				got := t.take(work.Taking{Stamp: d, Limit: 5, Hold: long})
				if len(got) != 1 || got[0].Attempts != n {
					t.Fatalf("delivery %d: took %+v", n, got)
				}
				a := t.settle(work.Settlement{
					Effect: got[0].EffectID, Attempt: n, Stamp: d, State: work.Pending, Delay: t.lapsing(),
				})
				if t.Advance != nil {
					if got := t.take(work.Taking{Stamp: d, Limit: 5, Hold: long}); len(got) > 0 {
						t.Fatalf("taken before its delay was over")
					}
				}
				t.pass(a.Effect.Ready)
			}
		}},
		{"a taking or settlement with a made-up stamp is refused", func(t *trial) {
			t.emits("q", "x")
			madeUp := dispatcher(1)
			madeUp.Token = fence.MaxToken
			if _, err := t.ledger.Take(t.ctx,
				work.Taking{Stamp: madeUp, Limit: 5, Hold: long}); !errors.Is(err, fence.ErrAhead) {
				t.Errorf("taking with a made-up stamp: %v, want ErrAhead", err)
			}
			d := dispatcher(2)
			got := t.take(work.Taking{Stamp: d, Limit: 5, Hold: long})
			if len(got) != 1 {
				t.Fatalf("took %d effects, want one", len(got))
			}
			s := work.Settlement{Effect: got[0].EffectID, Attempt: 1, Stamp: madeUp, State: work.Sent}
			if a := t.ledger.Settle(t.ctx, []work.Settlement{s})[0]; !errors.Is(a.Err, fence.ErrAhead) {
				t.Errorf("settling with a made-up stamp: %v, want ErrAhead", a.Err)
			}
			s.Stamp = d
			if a := t.settle(s); a.Err != nil {
				t.Errorf("the rightful dispatcher: %v", a.Err)
			}
		}},
		{"an older dispatcher is shut out", func(t *trial) {
			t.emits("q", "x", "y")
			old, young := dispatcher(1), dispatcher(2)
			got := t.take(work.Taking{Stamp: old, Limit: 1, Hold: long})
			t.take(work.Taking{Stamp: young, Limit: 0, Hold: long}) // only raises the mark
			before := len(collect(t, "Refusals", t.ledger.Refusals(t.ctx, work.RefusalQuery{})))
			if _, err := t.ledger.Take(t.ctx,
				work.Taking{Stamp: old, Limit: 1, Hold: long}); !errors.Is(err, work.ErrStale) {
				t.Fatalf("an old dispatcher takes: %v, want stale", err)
			}
			if a := t.settle(work.Settlement{
				Effect: got[0].EffectID, Attempt: 1, Stamp: old, State: work.Sent,
			}); !errors.Is(a.Err, work.ErrStale) {
				t.Fatalf("an old dispatcher settles: %v, want stale", a.Err)
			}
			after := collect(t, "Refusals", t.ledger.Refusals(t.ctx, work.RefusalQuery{}))
			if len(after) != before+2 || after[1].Verb != work.VerbTake || after[0].Verb != work.VerbSettle {
				t.Fatalf("the refusals are %+v", after)
			}
			if stats, err := t.ledger.Stats(t.ctx, ""); err != nil ||
				slices.ContainsFunc(stats, func(s work.Stats) bool { return s.Queue == "" }) {
				t.Fatalf("a dispatcher that was refused altogether is of no queue: %+v, %v", stats, err)
			}
			same := young
			same.Grant = dispatcher(9).Grant
			if _, err := t.ledger.Take(t.ctx,
				work.Taking{Stamp: same, Limit: 1, Hold: long}); !errors.Is(err, fence.ErrCollision) {
				t.Fatalf("the same token from another grant: %v, want a collision", err)
			}
			other := old
			other.Key = "another/dispatcher"
			t.take(work.Taking{Stamp: other, Limit: 1, Hold: long})
		}},
		{"a settlement is for the delivery it names", func(t *trial) {
			t.emits("q", "x")
			d := dispatcher(1)
			got := t.take(work.Taking{Stamp: d, Limit: 1, Hold: long})[0]
			for _, attempt := range []int{0, 2} {
				if a := t.settle(work.Settlement{
					Effect: got.EffectID, Attempt: attempt, Stamp: d, State: work.Sent,
				}); !errors.Is(a.Err, work.ErrState) {
					t.Fatalf("settling delivery %d of 1: %v", attempt, a.Err)
				}
			}
			unknown := got.EffectID
			unknown.Generation++
			if a := t.settle(work.Settlement{
				Effect: unknown, Attempt: 1, Stamp: d, State: work.Sent,
			}); !errors.Is(a.Err, work.ErrNotFound) {
				t.Fatalf("settling an effect that is not there: %v", a.Err)
			}
		}},
		{"orphans are found and brought back", func(t *trial) {
			t.emits("q", "x", "y")
			d := dispatcher(1)
			got := t.take(work.Taking{Stamp: d, Limit: 1, Hold: t.lapsing()})[0]
			t.take(work.Taking{Stamp: d, Limit: 1, Hold: 100 * long})
			t.pass(got.Ready)
			orphans := collect(t, "Effects", t.ledger.Effects(t.ctx, work.EffectQuery{Orphaned: true}))
			if len(orphans) != 1 || orphans[0].EffectID != got.EffectID {
				t.Fatalf("the orphans are %+v", orphans)
			}
			t.settle(work.Settlement{
				Effect: got.EffectID, Attempt: 1, State: work.Pending, Actor: "reconciler",
				Note: "its dispatcher is gone",
			})
			if a := t.settle(work.Settlement{
				Effect: got.EffectID, Attempt: 1, Stamp: d, State: work.Sent,
			}); a.Err != nil {
				t.Fatalf("what a dispatcher knows is a fact, for as long as nobody has taken it again: %v", a.Err)
			}
		}},
		{"bad input is named", func(t *trial) {
			t.emits("q", "x")
			good := work.Taking{Stamp: dispatcher(1), Limit: 1, Hold: long}
			for name, spoil := range map[string]func(q *work.Taking){
				"no stamp":         func(q *work.Taking) { q.Stamp = fence.Stamp{} },
				"a numbered stamp": func(q *work.Taking) { q.Stamp.Seq = 1 },
				"no hold":          func(q *work.Taking) { q.Hold = 0 },
				"a negative limit": func(q *work.Taking) { q.Limit = -1 },
			} {
				q := good
				spoil(&q)
				if _, err := t.ledger.Take(t.ctx, q); !errors.Is(err, work.ErrInvalid) {
					t.Fatalf("%s: %v, want invalid", name, err)
				}
			}
			got := t.take(good)[0]
			for name, s := range map[string]work.Settlement{
				"neither stamp nor actor": {State: work.Sent},
				"no note":                 {State: work.Sent, Actor: "olga"},
				"no state":                {Stamp: good.Stamp},
				"a negative delay":        {State: work.Pending, Stamp: good.Stamp, Delay: -1},
			} {
				s.Effect, s.Attempt = got.EffectID, 1
				if a := t.settle(s); !errors.Is(a.Err, work.ErrInvalid) {
					t.Fatalf("%s: %v, want invalid", name, a.Err)
				}
			}
		}},
	}
}

// emits completes a new item with effects of these names.
func (t *trial) emits(queue string, names ...string) work.ID {
	t.Helper()
	h := t.running(queue)
	req := h.by(work.Complete)
	for _, n := range names {
		req.Effects = append(req.Effects, work.Emission{Name: n, Body: []byte("body of " + n)})
	}
	t.must(req)
	return h.ID
}

// allEffects reads every effect.
func (t *trial) allEffects() map[work.EffectID]work.Effect {
	t.Helper()
	all := map[work.EffectID]work.Effect{}
	for _, e := range collect(t, "Effects", t.ledger.Effects(t.ctx, work.EffectQuery{})) {
		all[e.EffectID] = e
	}
	return all
}

// take takes effects while nobody else does. It compares the effects taken, and
// those left, with the law.
func (t *trial) take(q work.Taking) []work.Effect {
	t.Helper()
	before, earliest := t.allEffects(), t.now()
	got, err := t.ledger.Take(t.ctx, q)
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	after := t.allEffects()
	latest := t.now()
	if len(got) > q.Limit {
		t.Fatalf("a taking of %d got %d", q.Limit, len(got))
	}
	if q.Ordered {
		t.inTurn(q, before, got, earliest)
		return got
	}
	var last work.Effect // as it was
	for i, e := range got {
		was := before[e.EffectID]
		at := e.Ready.Add(-q.Hold)
		if at.Before(earliest) || at.After(latest) || !q.Takes(was, at) {
			t.Fatalf("took %s at %s, which the law does not: it was %s, ready %s", e.EffectID, at, was.State, was.Ready)
		}
		if i > 0 && !last.Before(was) {
			t.Fatalf("took %s before %s, against the order of takings", last.EffectID, e.EffectID)
		}
		last = was
		before[e.EffectID] = work.Take(was, q, at)
		if d := suite.Differ(before[e.EffectID], e); d != "" {
			t.Fatalf("the effect taken is not the law's: %s", d)
		}
	}
	for id, e := range before {
		if d := suite.Differ(e, after[id]); d != "" {
			t.Fatalf("after a taking the effect kept is not the law's: %s", d)
		}
		if q.Takes(e, earliest) && (len(got) < q.Limit || q.Limit > 0 && e.Before(last)) {
			t.Fatalf("a taking of %d got %d and left %s, which was its turn", q.Limit, len(got), id)
		}
	}
	return got
}

// inTurn compares what an ordered taking got with the law.
func (t *trial) inTurn(q work.Taking, before map[work.EffectID]work.Effect, got []work.Effect, earliest time.Time) {
	t.Helper()
	next, due := q.Next(maps.Values(before), earliest)
	switch {
	case len(got) > 1:
		t.Fatalf("an ordered taking got %d effects", len(got))
	case len(got) == 1 && (got[0].EffectID != next.EffectID || next.State != work.Pending):
		t.Fatalf("an ordered taking got %s; the first is %s, which is %s", got[0].EffectID, next.EffectID, next.State)
	case len(got) == 0 && due:
		t.Fatalf("an ordered taking left %s, which was its turn", next.EffectID)
	}
}

// oneUnderWay checks that an effect under way holds up an earlier one that an
// operator makes pending again.
func (t *trial) oneUnderWay(q work.Taking) {
	t.Helper()
	q.To = []string{"again"}
	t.emits("q", "again")
	if t.Advance != nil {
		t.Advance(time.Millisecond)
	}
	t.emits("q", "again")
	settle := func(e work.Effect, state work.EffectState) {
		t.settle(work.Settlement{Effect: e.EffectID, Attempt: e.Attempts, Stamp: q.Stamp, State: state})
	}
	var both []work.Effect
	for range 2 {
		got := t.take(q)
		if len(got) != 1 {
			t.Fatalf("took %d effects, want one", len(got))
		}
		if both = append(both, got...); len(both) == 1 {
			settle(both[0], work.Failed)
		}
	}
	t.settle(work.Settlement{
		Effect: both[0].EffectID, Attempt: 1, State: work.Pending, Actor: "olga", Note: "the receiver is back",
	})
	if got := t.take(q); len(got) > 0 {
		t.Fatalf("took %s again while %s is under way", got[0].EffectID, both[1].EffectID)
	}
	settle(both[1], work.Sent)
	got := t.take(q)
	if len(got) != 1 || got[0].EffectID != both[0].EffectID {
		t.Fatalf("took %+v, want %s again", got, both[0].EffectID)
	}
	settle(got[0], work.Sent)
}

// settle sends one settlement and compares the answer, and the stored effect,
// with the law. It cannot read the mark; the mark shows in later refusals.
func (t *trial) settle(s work.Settlement) work.EffectAnswer {
	t.Helper()
	find := func() work.Effect {
		if s.Effect.Check() != nil {
			return work.Effect{}
		}
		of := t.effectsOf(s.Effect.Item)
		if i := slices.IndexFunc(of, func(e work.Effect) bool { return e.EffectID == s.Effect }); i >= 0 {
			return of[i]
		}
		return work.Effect{}
	}
	before := find()
	answers := t.ledger.Settle(t.ctx, []work.Settlement{s})
	if len(answers) != 1 {
		t.Fatalf("one settlement got %d answers", len(answers))
	}
	got, after := answers[0], find()
	if refused := errors.Is(got.Err, work.ErrStale) ||
		errors.Is(got.Err, fence.ErrCollision); refused || s.Check() != nil {
		if d := suite.Differ(before, after); d != "" {
			t.Fatalf("a refused settlement has changed the effect: %s", d)
		}
		return got
	}
	mark := s.Stamp.Mark()
	out, err := work.Settle(before, mark, s, got.Now)
	if d := differentErrors(err, got.Err); d != "" {
		t.Fatalf("settling %s as %s: %s", before.State, s.State, d)
	}
	if d := suite.Differ(out.Effect, after); d != "" {
		t.Fatalf("after settling as %s the effect kept is not the law's: %s", s.State, d)
	}
	if err == nil && got.Repeated == out.Changed {
		t.Fatalf("settling %s as %s: Repeated is %v", before.State, s.State, got.Repeated)
	}
	if err == nil && (got.Effect.EffectID != s.Effect || got.Effect.State != after.State ||
		got.Effect.Attempts != after.Attempts || got.Effect.Sender != after.Sender ||
		!got.Effect.Ready.Equal(after.Ready)) {
		t.Fatalf("the answer's effect is %+v", got.Effect)
	}
	return got
}
