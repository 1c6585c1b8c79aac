package worktest

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/work"
)

func batches() []check {
	return []check{
		{"every request has its own answer", func(t *trial) {
			a, b := t.running("a"), t.running("b")
			t.must(hand(work.Cancel, b.ID))
			answers := t.steps(a.by(work.Complete), b.by(work.Complete), work.Request{Verb: work.Cancel},
				hand(work.Cancel, work.NewID()), added("c"), a.by(work.Complete))
			want := []error{nil, work.ErrStale, work.ErrInvalid, work.ErrNotFound, nil, nil}
			for i, a := range answers {
				if want[i] == nil && a.Err != nil || want[i] != nil && !errors.Is(a.Err, want[i]) {
					t.Fatalf("answer %d: %v, want %v", i, a.Err, want[i])
				}
			}
			if !answers[5].Repeated {
				t.Fatalf("the second completion in one batch was taken for the first")
			}
		}},
		{"requests on one item are carried out in their order", func(t *trial) {
			h := t.running("q")
			save, report := h.by(work.Checkpoint), h.by(work.Report)
			save.State, report.Progress = []byte("half"), "half"
			t.steps(h.by(work.Heartbeat), report, save, h.by(work.Release), h.by(work.Complete))
			if it := t.get(h.ID); it.State != work.Waiting || string(it.Checkpoint) != "half" {
				t.Fatalf("after heartbeat, report, checkpoint, release and complete: %s, checkpoint %q",
					it.State, it.Checkpoint)
			}
			add := added("q2")
			t.steps(add, add, hand(work.Cancel, add.ID))
		}},
		{"a batch with one idempotency key adds one item", func(t *trial) {
			var requests []work.Request
			for range 4 {
				req := added("q")
				req.Unique = "same"
				requests = append(requests, req)
			}
			other := added("q")
			other.Unique, other.Payload = "same", []byte("other")
			requests = append(requests, other)
			t.steps(requests...)
			if n := len(t.all()); n != 1 {
				t.Fatalf("there are %d items", n)
			}
		}},
		{"a large batch", func(t *trial) {
			n := t.many(600, 300)
			var adds []work.Request
			for range n {
				adds = append(adds, added("q"))
			}
			for i, a := range t.apply(t.ledger, adds...) {
				if a.Err != nil || a.Item.ID != adds[i].ID {
					t.Fatalf("add %d of %d: %v", i, n, a.Err)
				}
			}
			c := claimOf("q")
			c.Limit = n
			got, err := t.ledger.Claim(t.ctx, c)
			if err != nil || len(got) != n {
				t.Fatalf("claimed %d of %d: %v", len(got), n, err)
			}
			var beats, ends []work.Request
			for _, it := range got {
				h := held{it, c.Secret}
				beats = append(beats, h.by(work.Heartbeat))
				end := h.by(work.Complete)
				end.Result, end.Effects = []byte(it.ID), []work.Emission{{Name: "x"}}
				ends = append(ends, end)
			}
			for _, batch := range [][]work.Request{beats, ends, ends} {
				for i, a := range t.apply(t.ledger, batch...) {
					if a.Err != nil {
						t.Fatalf("%s %d of %d: %v", batch[i].Verb, i, n, a.Err)
					}
				}
			}
			if e := t.allEffects(); len(e) != n {
				t.Fatalf("%d effects of %d completions", len(e), n)
			}
			for _, it := range collect(t, "List", t.ledger.List(t.ctx, work.Query{Newest: true, Limit: 3})) {
				if whole := t.get(it.ID); whole.State != work.Done || string(whole.Result) != string(it.ID) {
					t.Fatalf("item %s has the result %q", it.ID, whole.Result)
				}
			}
		}},
		{"nothing asked, nothing answered", func(t *trial) {
			if a := t.ledger.Apply(t.ctx, nil); len(a) != 0 {
				t.Fatalf("%d answers", len(a))
			}
			if a := t.ledger.Settle(t.ctx, nil); len(a) != 0 {
				t.Fatalf("%d answers", len(a))
			}
		}},
		{"settlements have an answer each", func(t *trial) {
			t.emits("q", "a", "b", "c")
			d := dispatcher(1)
			var all []work.Settlement
			for _, e := range t.take(work.Taking{Stamp: d, Limit: 10, Hold: time.Minute}) {
				all = append(all, work.Settlement{Effect: e.EffectID, Attempt: 1, Stamp: d, State: work.Sent})
			}
			all = append(all, work.Settlement{}, all[0])
			all[1].Attempt = 7
			answers := t.ledger.Settle(t.ctx, all)
			if len(answers) != 5 || answers[0].Err != nil || !errors.Is(answers[1].Err, work.ErrState) ||
				answers[2].Err != nil || !errors.Is(answers[3].Err, work.ErrInvalid) || !answers[4].Repeated {
				t.Fatalf("the answers are %+v", answers)
			}
		}},
	}
}
