package worktest

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/work"
)

func refusals() []check {
	return []check{
		{"a refusal says who tried what and whose token is newer", func(t *trial) {
			h := t.lapsed("q")
			t.rescue(h.Item)
			c := claimOf("q")
			c.Owner = "bob"
			next := t.claim(c)[0]
			t.step(h.by(work.Complete))
			got := t.refusalsOf(h.ID)
			if len(got) != 1 {
				t.Fatalf("%d refusals", len(got))
			}
			r := got[0]
			if r.Verb != work.Complete || r.Why != "stale" || r.Queue != "q" ||
				r.Presented != h.Record.Token || r.PresentedOwner != "ann" || r.Newest != next.Record.Token ||
				r.NewestOwner != "bob" {
				t.Fatalf("the refusal is %+v", r)
			}
		}},
		{"they are read newest first, by item, queue, time and number", func(t *trial) {
			var all []held
			for _, q := range []string{"a", "b"} {
				h := t.running(q)
				t.must(hand(work.Cancel, h.ID))
				all = append(all, h)
			}
			var times []time.Time
			for i := range 6 {
				times = append(times, t.step(all[i%2].by(work.Heartbeat)).Now)
				if t.Advance != nil {
					t.Advance(time.Second)
				} else {
					t.pass(t.now().Add(time.Millisecond))
				}
			}
			for _, c := range []struct {
				q    work.RefusalQuery
				want int
			}{
				{work.RefusalQuery{}, 6},
				{work.RefusalQuery{Queue: "a"}, 3},
				{work.RefusalQuery{Item: all[1].ID}, 3},
				{work.RefusalQuery{Item: all[1].ID, Queue: "a"}, 0},
				{work.RefusalQuery{Since: times[4]}, 2},
				{work.RefusalQuery{Limit: 4}, 4},
			} {
				got := collect(t, "Refusals", t.ledger.Refusals(t.ctx, c.q))
				if len(got) != c.want {
					t.Fatalf("%+v: %d refusals, want %d", c.q, len(got), c.want)
				}
				for i, r := range got {
					if !c.q.Selects(r) || i > 0 && got[i-1].At.Before(r.At) {
						t.Fatalf("%+v: %+v", c.q, got)
					}
				}
			}
			for _, err := range t.ledger.Refusals(t.ctx, work.RefusalQuery{Limit: -1}) {
				if !errors.Is(err, work.ErrInvalid) {
					t.Fatalf("a negative limit: %v", err)
				}
			}
		}},
		{"only stale writes are refusals", func(t *trial) {
			h := t.running("q")
			t.must(h.by(work.Complete))
			t.must(h.by(work.Complete))               // repeated
			t.step(h.by(work.Fail))                   // illegal
			t.step(hand(work.Cancel, h.ID))           // illegal
			t.step(work.Request{Verb: "x", ID: h.ID}) // invalid
			t.step(hand(work.Cancel, work.NewID()))   // unknown
			if n := len(t.refusalsOf(h.ID)); n != 0 {
				t.Fatalf("%d refusals", n)
			}
		}},
	}
}
