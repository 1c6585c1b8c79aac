package worktest

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func claiming() []check {
	return []check{
		{"oldest first within priority", func(t *trial) {
			for _, p := range []int{0, 5, 0, -5, 5, 0} {
				req := added("q")
				req.Priority = p
				t.must(req)
				if t.Advance != nil {
					t.Advance(time.Millisecond)
				}
			}
			for _, want := range []int{2, 1, 3} {
				c := claimOf("q")
				c.Limit = want
				if got := t.claim(c); len(got) != want {
					t.Fatalf("a claim of %d got %d", want, len(got))
				}
			}
			if got := t.claim(claimOf("q")); len(got) != 0 {
				t.Fatalf("an empty queue gave %d items", len(got))
			}
		}},
		{"items added together are claimed in their order", func(t *trial) {
			var adds []work.Request
			for range 2 {
				var batch []work.Request
				for range 12 {
					batch = append(batch, added("q"))
				}
				t.apply(t.ledger, batch...)
				adds = append(adds, batch...)
			}
			for len(adds) > 0 {
				c := claimOf("q")
				c.Limit = 5
				for _, it := range t.claim(c) {
					if it.ID != adds[0].ID {
						t.Fatalf("got item %s, want %s, which was added before it", it.ID, adds[0].ID)
					}
					adds = adds[1:]
				}
			}
		}},
		{"nothing before its time", func(t *trial) {
			req := added("q")
			req.Delay = t.lapsing()
			a := t.must(req)
			t.claim(claimOf("q")) // nothing, if the clock has not got there
			if t.Advance != nil {
				t.pass(t.get(a.Item.ID).Ready.Add(-time.Microsecond))
				if got := t.claim(claimOf("q")); len(got) != 0 {
					t.Fatalf("claimed a microsecond before its time")
				}
			}
			t.pass(t.get(a.Item.ID).Ready)
			if t.get(a.Item.ID).State == work.Waiting {
				t.claimed("q", long)
			}
			far := added("far")
			far.Delay, far.Priority = long, 100
			t.must(far)
			if got := t.claim(claimOf("far")); len(got) != 0 {
				t.Fatalf("an item was claimed an hour before its time")
			}
		}},
		{"only from the queues named", func(t *trial) {
			for _, q := range []string{"a", "b", "a/b"} {
				t.must(added(q))
			}
			c := claimOf("a")
			c.Limit = 10
			if got := t.claim(c); len(got) != 1 {
				t.Fatalf("queue a has one item, the claim got %d", len(got))
			}
			c = claimOf("b")
			c.Queues, c.Limit = []string{"a", "b", "a/b", "none"}, 10
			if got := t.claim(c); len(got) != 2 {
				t.Fatalf("two items are left, the claim got %d", len(got))
			}
		}},
		{"several queues share one order", func(t *trial) {
			for i := range 12 {
				req := added(pick(t, "a", "b", "c"))
				req.Priority = i % 3
				t.must(req)
			}
			for range 4 {
				c := claimOf("a")
				c.Queues, c.Limit = []string{"c", "a", "b"}, 3
				if got := t.claim(c); len(got) != 3 {
					t.Fatalf("got %d of 3 items", len(got))
				}
			}
		}},
		{"every attempt is counted and has a higher token", func(t *trial) {
			h := t.running("q")
			for n := 2; n < 5; n++ {
				req := h.by(work.Fail)
				req.Delay = time.Microsecond
				t.must(req)
				t.pass(t.get(h.ID).Ready)
				next := t.claimed("q", long)
				if next.Attempts != n || next.Record.Token <= h.Record.Token {
					t.Fatalf("attempt %d has number %d and token %d after %d", n, next.Attempts,
						next.Record.Token, h.Record.Token)
				}
				h = next
			}
		}},
		{"running and finished items are not claimed", func(t *trial) {
			t.running("q")
			done := t.running("done")
			t.must(done.by(work.Complete))
			dead := t.running("dead")
			final := dead.by(work.Fail)
			final.Final = true
			t.must(final)
			t.must(hand(work.Cancel, t.must(added("cancelled")).Item.ID))
			lapsed := t.lapsed("lapsed")
			c := claimOf("q")
			c.Queues, c.Limit = []string{"q", "done", "dead", "cancelled", "lapsed"}, 10
			if got := t.claim(c); len(got) != 0 {
				t.Fatalf("got %s", describe(got[0]))
			}
			t.rescue(lapsed.Item)
			if got := t.claim(c); len(got) != 1 {
				t.Fatalf("after the requeue of one lapsed item a claim got %d", len(got))
			}
		}},
		{"the checkpoint is handed to the next owner", func(t *trial) {
			h := t.running("q")
			save := h.by(work.Checkpoint)
			save.State = []byte{1, 0, 2}
			t.must(save)
			t.must(h.by(work.Release))
			if next := t.claimed("q", long); string(next.Checkpoint) != string(save.State) {
				t.Fatalf("the next owner got the checkpoint %q", next.Checkpoint)
			}
		}},
		{"a claim sent again gets what it was granted", func(t *trial) {
			for range 5 {
				t.must(added("q"))
			}
			c := claimOf("q")
			c.Limit = 2
			first := t.claim(c)
			c.Again = true
			if again := t.claim(c); len(again) != 2 || again[0].ID != first[0].ID {
				t.Fatalf("sent again, a claim of 2 got %d other items", len(again))
			}
			fresh := claimOf("q") // sent again, but the first had never arrived
			fresh.Again = true
			if got := t.claim(fresh); len(got) != 1 {
				t.Fatalf("got %d items", len(got))
			}
		}},
		{"a secret is granted an item once", func(t *trial) {
			t.must(added("q"))
			c := claimOf("q")
			h := held{t.claim(c)[0], c.Secret}
			t.must(h.by(work.Release))
			if got := t.claim(c); len(got) != 0 {
				t.Fatalf("a late copy of a claim got the item again")
			}
			other := t.claimed("q", long)
			t.must(other.by(work.Release))
			c.Again = true
			if got := t.claim(c); len(got) != 0 {
				t.Fatalf("a late copy of a claim got the item again, after another owner")
			}
		}},
		{"bad claims are named", func(t *trial) {
			t.must(added("q"))
			for name, spoil := range map[string]func(c *work.Claim){
				"no queue":    func(c *work.Claim) { c.Queues = nil },
				"a bad queue": func(c *work.Claim) { c.Queues = []string{""} },
				"no items":    func(c *work.Claim) { c.Limit = 0 },
				"too many":    func(c *work.Claim) { c.Limit = work.MaxClaim + 1 },
				"no secret":   func(c *work.Claim) { c.Secret = "" },
				"no owner":    func(c *work.Claim) { c.Owner = " " },
				"no TTL":      func(c *work.Claim) { c.TTL = 0 },
				"a huge TTL":  func(c *work.Claim) { c.TTL = tenure.MaxTTL + 1 },
			} {
				c := claimOf("q")
				spoil(&c)
				if _, err := t.ledger.Claim(t.ctx, c); !errors.Is(err, work.ErrInvalid) {
					t.Fatalf("%s: %v, want invalid", name, err)
				}
			}
			t.claimed("q", long) // still there
		}},
	}
}
