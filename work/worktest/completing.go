package worktest

import (
	"bytes"
	"errors"
	"strings"

	"github.com/croft-dev/croft/work"
)

func completing() []check {
	return []check{
		{"result and effects are written with the completion", func(t *trial) {
			h := t.running("q")
			req := h.by(work.Complete)
			req.Result = []byte{0, 200, 'x'}
			req.Effects = []work.Emission{
				{Name: "charge", To: "bank", Body: []byte{0, 1}, AtMostOnce: true},
				{Name: "mail/customer ✓", Body: []byte(`{"a":1}`)},
				{Name: "empty"},
			}
			t.must(req)
			got := t.effectsOf(h.ID)
			if len(got) != 3 || got[0].Token != h.Record.Token || got[0].Owner != "ann" {
				t.Fatalf("the outbox has %+v", got)
			}
		}},
		{"a second completion returns the first result", func(t *trial) {
			h := t.running("q")
			first := h.by(work.Complete)
			first.Result, first.Effects = []byte("first"), []work.Emission{{Name: "charge", Body: []byte("10")}}
			t.must(first)
			if a := t.must(first); !a.Repeated || string(a.Item.Result) != "first" {
				t.Fatalf("completing again: %+v", a)
			}
			second := h.by(work.Complete)
			second.Result, second.Effects = []byte("second"), []work.Emission{
				{Name: "charge", Body: []byte("20")}, {Name: "more"},
			}
			if a := t.must(second); !a.Repeated || string(a.Item.Result) != "first" {
				t.Fatalf("completing again with another result: %q, want the first", a.Item.Result)
			}
			if e := t.effectsOf(h.ID); len(e) != 1 || string(e[0].Body) != "10" {
				t.Fatalf("completing again has changed the outbox: %+v", e)
			}
		}},
		{"a re-attempt uses the identity of the effect again", func(t *trial) {
			h := t.lapsed("q")
			t.rescue(h.Item)
			next := t.claimed("q", long)
			req := next.by(work.Complete)
			req.Effects = []work.Emission{{Name: "charge"}}
			t.must(req)
			want := work.EffectID{Item: h.ID, Name: "charge"}
			if e := t.effectsOf(h.ID); len(e) != 1 || e[0].EffectID != want || e[0].Token != next.Record.Token {
				t.Fatalf("the effect is %+v; its identity is item, name and generation, "+
					"and the token only where it came from", e)
			}
		}},
		{"only replay again opens a new generation", func(t *trial) {
			h := t.running("q")
			req := h.by(work.Complete)
			req.Result, req.Effects = []byte("1"), []work.Emission{{Name: "charge", Body: []byte("1")}}
			t.must(req)
			if a := t.step(hand(work.Replay, h.ID)); !errors.Is(a.Err, work.ErrState) {
				t.Fatalf("replay of a done item: %v, want a state error", a.Err)
			}
			again := hand(work.Replay, h.ID)
			again.Again = true
			t.must(again)
			next := t.claimed("q", long)
			req = next.by(work.Complete)
			req.Result, req.Effects = []byte("2"), []work.Emission{{Name: "charge", Body: []byte("2")}}
			t.must(req)
			e := t.effectsOf(h.ID)
			if len(e) != 2 || e[0].Generation != 0 || e[1].Generation != 1 || string(e[0].Body) != "1" {
				t.Fatalf("the outbox has %+v", e)
			}
			if a := t.step(h.by(work.Complete)); !errors.Is(a.Err, work.ErrStale) {
				t.Fatalf("a copy of the first generation's completion: %v, want stale", a.Err)
			}
		}},
		{"the largest result and the most effects", func(t *trial) {
			h := t.running("q")
			req := h.by(work.Complete)
			req.Result = bytes.Repeat([]byte("r"), work.MaxPayload)
			for i := range work.MaxEffects {
				req.Effects = append(req.Effects, work.Emission{
					Name: strings.Repeat("n", work.MaxEffectName-2) + string(rune('A'+i/26)) + string(rune('a'+i%26)),
				})
			}
			req.Effects[0].Body = bytes.Repeat([]byte("b"), work.MaxBody)
			t.must(req)
			if n := len(t.effectsOf(h.ID)); n != work.MaxEffects {
				t.Fatalf("%d effects were written", n)
			}
		}},
		{"an operator completes by the same law", func(t *trial) {
			h := t.running("q")
			take := hand(work.Takeover, h.ID)
			taken := t.must(take)
			by := held{taken.Item, take.Secret}
			t.must(by.by(work.Complete))
			if a := t.step(h.by(work.Complete)); !errors.Is(a.Err, work.ErrStale) {
				t.Fatalf("the owner that was replaced: %v, want stale", a.Err)
			}
		}},
	}
}
