package worktest

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

var handVerbs = []work.Verb{work.Cancel, work.Reassign, work.Takeover, work.Replay, work.RunNow}

func byHand() []check {
	return []check{
		{"every act in every state, by the law", func(t *trial) {
			for _, verb := range handVerbs {
				for _, state := range work.States {
					id := t.inState(state, "states/"+string(verb)+"/"+string(state))
					req := hand(verb, id)
					a := t.step(req)
					if a.Err == nil && t.get(id).Record.Token <= 1 {
						t.Fatalf("%s of a %s item burned no token", verb, state)
					}
					if again := t.step(req); a.Err == nil && (again.Err != nil || !again.Repeated) {
						t.Fatalf("%s of a %s item sent again: %v; a repeated request has the effect of one",
							verb, state, again.Err)
					}
				}
			}
		}},
		{"an act keeps cause, actor and note", func(t *trial) {
			h := t.running("q")
			t.must(hand(work.Reassign, h.ID))
			it := t.get(h.ID)
			last := it.Record.History[len(it.Record.History)-1]
			if last.Actor != "olga" || last.Note != "because" || last.Token <= h.Record.Token ||
				len(it.Record.History) != 2 {
				t.Fatalf("the history is %+v", it.Record.History)
			}
		}},
		{"an act without actor or note is refused", func(t *trial) {
			h := t.running("q")
			for _, verb := range handVerbs {
				for _, spoil := range []func(r *work.Request){
					func(r *work.Request) { r.Actor = "" }, func(r *work.Request) { r.Note = " " },
				} {
					req := hand(verb, h.ID)
					spoil(&req)
					if a := t.step(req); !errors.Is(a.Err, work.ErrInvalid) {
						t.Fatalf("%s: %v, want invalid", verb, a.Err)
					}
				}
			}
		}},
		{"a reassigned item is for its owner alone, for a time", func(t *trial) {
			for _, start := range []work.State{work.Waiting, work.Running} {
				queue := "reassigned/" + string(start)
				id := t.inState(start, queue)
				req := hand(work.Reassign, id)
				req.TTL = 2 * long
				t.must(req)
				if got := t.claim(claimOf(queue)); len(got) > 0 { // ann
					t.Fatalf("an item reserved for cleo went to ann")
				}
				c := claimOf(queue)
				c.Owner = "cleo"
				got := t.claim(c)
				if len(got) != 1 || got[0].Record.Cause != tenure.Handoff {
					t.Fatalf("cleo got %d items", len(got))
				}
			}
			id := t.inState(work.Running, "lapsing")
			req := hand(work.Reassign, id)
			req.TTL = t.lapsing()
			a := t.must(req)
			t.pass(a.Item.Record.Deadline)
			t.claimed("lapsing", long)
		}},
		{"an act that was overtaken is told so", func(t *trial) {
			h := t.running("q")
			first := hand(work.Reassign, h.ID)
			t.must(first)
			t.must(hand(work.Reassign, h.ID))
			if a := t.step(first); !errors.Is(a.Err, work.ErrStale) {
				t.Fatalf("%v, want stale", a.Err)
			}
		}},
		{"a replayed item begins to count again", func(t *trial) {
			for _, state := range []work.State{work.Dead, work.Cancelled} {
				queue := "replayed/" + string(state)
				id := t.inState(state, queue)
				req := hand(work.Replay, id)
				req.Delay = pick(t, 0, time.Microsecond)
				a := t.must(req)
				if a.Item.Attempts != 0 || a.Item.Generation != 0 {
					t.Fatalf("after replay: %+v", a.Item)
				}
				t.pass(a.Now.Add(time.Millisecond))
				t.claimed(queue, long)
			}
		}},
		{"an item that waits for its time can run now", func(t *trial) {
			late := added("later")
			late.Delay, late.Limit = 100*long, 3
			id := t.must(late).Item.ID
			t.must(added("later"))
			before := t.get(id)
			a := t.must(hand(work.RunNow, id))
			it := t.get(id)
			if it.Ready.After(a.Now) || it.Attempts != before.Attempts || it.Limit != 3 || it.State != work.Waiting {
				t.Fatalf("after run-now: %+v", it)
			}
			t.must(hand(work.RunNow, id)) // its time has come: it stays where it is
			if again := t.get(id); !again.Ready.Equal(it.Ready) {
				t.Fatalf("ready at %s, and after another run-now at %s", it.Ready, again.Ready)
			}
			h := t.running("busy")
			if a := t.step(hand(work.RunNow, h.ID)); !errors.Is(a.Err, work.ErrState) {
				t.Fatalf("run-now of a running item: %v", a.Err)
			}
		}},
		{"a long history keeps its newest part", func(t *trial) {
			id := t.must(added("q")).Item.ID
			for range tenure.HistoryLen + 3 {
				t.must(hand(work.Reassign, id))
			}
			if n := len(t.get(id).Record.History); n != tenure.HistoryLen {
				t.Fatalf("it has %d transfers", n)
			}
		}},
	}
}

// inState brings a new item of a queue into a state.
func (t *trial) inState(state work.State, queue string) work.ID {
	t.Helper()
	if state == work.Waiting {
		return t.must(added(queue)).Item.ID
	}
	h := t.running(queue)
	switch state {
	case work.Done:
		t.must(h.by(work.Complete))
	case work.Dead:
		req := h.by(work.Fail)
		req.Final, req.Error = true, "broken"
		t.must(req)
	case work.Cancelled:
		t.must(hand(work.Cancel, h.ID))
	}
	return h.ID
}
