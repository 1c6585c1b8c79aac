package worktest

import (
	"errors"
	"strings"
	"time"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func requeueing() []check {
	return []check{
		{"a lapsed item waits again, with a new token and the cause expired", func(t *trial) {
			h := t.lapsed("q")
			req := requeue(h.Item)
			a := t.must(req)
			if a.Item.State != work.Waiting || a.Item.Record.Cause != tenure.Expired ||
				a.Item.Record.Token <= h.Record.Token {
				t.Fatalf("after the requeue: %+v", a.Item)
			}
			if again := t.must(req); !again.Repeated {
				t.Fatalf("requeued twice")
			}
		}},
		{"a rescued item keeps why, and waits as after a failure", func(t *trial) {
			h := t.lapsed("q")
			a := t.must(requeue(h.Item))
			it := t.get(h.ID)
			if !strings.HasPrefix(it.Error, "its worker was lost") {
				t.Fatalf("its error is %q", it.Error)
			}
			if wait := it.Ready.Sub(a.Now); wait < work.BackoffLeast {
				t.Fatalf("it waits for %s, want at least %s", wait, work.BackoffLeast)
			}
			if t.Advance == nil {
				return
			}
			if got := t.claim(claimOf("q")); len(got) > 0 {
				t.Fatalf("it was claimed before its time")
			}
			t.pass(it.Ready)
			if next := t.claimed("q", long); next.Attempts != 2 || next.Error != it.Error {
				t.Fatalf("attempt %d begins with the error %q", next.Attempts, next.Error)
			}
		}},
		{"an item whose owner is alive is left alone", func(t *trial) {
			h := t.running("q")
			if a := t.step(requeue(h.Item)); !errors.Is(a.Err, work.ErrState) {
				t.Fatalf("requeue of a living item: %v", a.Err)
			}
			if t.Advance != nil {
				t.pass(h.Record.Deadline.Add(-time.Microsecond))
				if a := t.step(requeue(h.Item)); !errors.Is(a.Err, work.ErrState) {
					t.Fatalf("requeue a microsecond before the deadline: %v", a.Err)
				}
			}
		}},
		{"compare and swap on the token", func(t *trial) {
			h := t.lapsed("q")
			t.rescue(h.Item)
			c := claimOf("q")
			c.TTL = t.lapsing()
			next := t.claim(c)[0]
			t.pass(next.Record.Deadline) // also lapsed, but not the term that the reconciler has read
			if a := t.step(requeue(h.Item)); !errors.Is(a.Err, work.ErrStale) {
				t.Fatalf("requeue by a token that is no longer the newest: %v, want stale", a.Err)
			}
			if n := len(t.refusalsOf(h.ID)); n != 0 {
				t.Fatalf("a reconciler that was overtaken left %d refusals", n)
			}
		}},
		{"an item that was given back is left alone", func(t *trial) {
			h := t.lapsed("q")
			t.must(h.by(work.Complete))
			if a := t.step(requeue(h.Item)); !errors.Is(a.Err, work.ErrState) {
				t.Fatalf("requeue of a done item: %v", a.Err)
			}
		}},
		{"exhausted is dead", func(t *trial) {
			add := added("q")
			add.Limit = 1
			t.must(add)
			h := t.claimed("q", t.lapsing())
			t.pass(h.Record.Deadline)
			if a := t.must(requeue(h.Item)); a.Item.State != work.Dead {
				t.Fatalf("its one attempt is used up, and it is %s", a.Item.State)
			}
		}},
	}
}
