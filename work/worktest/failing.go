package worktest

import (
	"time"

	"github.com/croft-dev/croft/work"
)

func failing() []check {
	return []check{
		{"a failure waits for its backoff", func(t *trial) {
			h := t.running("q")
			req := h.by(work.Fail)
			req.Error = "it broke:\n\tat line 3"
			a := t.must(req)
			if a.Item.State != work.Waiting || t.get(h.ID).Ready.Sub(a.Now) < work.BackoffLeast {
				t.Fatalf("after a failure it is %s and ready in %s", a.Item.State, t.get(h.ID).Ready.Sub(a.Now))
			}
			if got := t.claim(claimOf("q")); len(got) > 0 && t.Advance != nil {
				t.Fatalf("claimed before its backoff was over")
			}
		}},
		{"dead after the limit", func(t *trial) {
			add := added("q")
			add.Limit = 3
			t.must(add)
			for n := 1; n <= 3; n++ {
				h := t.claimed("q", long)
				req := h.by(work.Fail)
				req.Error, req.Delay = "no", time.Microsecond
				a := t.must(req)
				if want := map[bool]work.State{false: work.Waiting, true: work.Dead}[n == 3]; a.Item.State != want {
					t.Fatalf("after failure %d of 3 it is %s", n, a.Item.State)
				}
				t.pass(a.Now.Add(time.Millisecond))
			}
			if got := t.claim(claimOf("q")); len(got) > 0 {
				t.Fatalf("a dead item was claimed")
			}
		}},
		{"a final failure is final", func(t *trial) {
			h := t.running("q")
			req := h.by(work.Fail)
			req.Final = true
			if a := t.must(req); a.Item.State != work.Dead {
				t.Fatalf("it is %s", a.Item.State)
			}
		}},
		{"a release is not an attempt and keeps its position", func(t *trial) {
			h := t.running("q")
			if t.Advance != nil {
				t.Advance(time.Second)
			}
			t.must(added("q"))
			a := t.must(h.by(work.Release))
			if a.Item.Attempts != 0 {
				t.Fatalf("a release has left %d attempts", a.Item.Attempts)
			}
			if t.Advance != nil {
				if next := t.claimed("q", long); next.ID != h.ID {
					t.Fatalf("the item released has lost its position")
				}
			}
		}},
		{"an item keeps why it was given back", func(t *trial) {
			h := t.running("q")
			req := h.by(work.Release)
			req.Error = "the disk is gone"
			t.must(req)
			t.must(t.claimed("q", long).by(work.Release)) // without a reason of its own
			if it := t.get(h.ID); it.Error != req.Error {
				t.Fatalf("it keeps %q, want %q", it.Error, req.Error)
			}
		}},
		{"a release may wait", func(t *trial) {
			h := t.running("q")
			req := h.by(work.Release)
			req.Delay = long
			t.must(req)
			if got := t.claim(claimOf("q")); len(got) > 0 {
				t.Fatalf("claimed before its time")
			}
		}},
	}
}
