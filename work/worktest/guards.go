package worktest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// guarded returns a request for a new item that names guards.
func guarded(queue string) work.Request {
	req := added(queue)
	req.Guards = []string{"s3://bucket/out/{id}.json", "postgres://db.example.com/app#{key}"}
	return req
}

func guards() []check {
	return []check{
		{"an item keeps its guards, and every reader gets them", func(t *trial) {
			req := guarded("q ?#%/ü")
			t.must(req)
			want := []string{
				"s3://bucket/out/" + string(req.ID) + ".json",
				"postgres://db.example.com/app#q%20%3F%23%25/%C3%BC/" + string(req.ID),
			}
			if it := t.get(req.ID); !slices.Equal(it.Guards, want) {
				t.Fatalf("kept %q, want %q", it.Guards, want)
			}
			for _, q := range []work.Query{{}, {States: []work.State{work.Waiting}}} {
				for _, it := range collect(t, "List", t.ledger.List(t.ctx, q)) {
					if !slices.Equal(it.Guards, want) {
						t.Fatalf("listed with %q, want %q", it.Guards, want)
					}
				}
			}
			first := t.claimed(req.Queue, long)
			t.must(first.by(work.Release))
			for _, h := range []held{first, t.claimed(req.Queue, long)} {
				if !slices.Equal(h.Guards, want) {
					t.Fatalf("attempt %d got %q, want %q", h.Record.Terms, h.Guards, want)
				}
			}
		}},
		{"guards are part of what an idempotency key names", func(t *trial) {
			first := guarded("q")
			first.Unique = "order 1"
			t.must(first)
			second := first
			second.ID = work.NewID()
			if a := t.must(second); a.Item.ID != first.ID || !a.Repeated {
				t.Fatalf("the same key and templates: got item %s, want %s again", a.Item.ID, first.ID)
			}
			for _, guards := range [][]string{nil, {first.Guards[0]}, {first.Guards[1], first.Guards[0]}} {
				other := second
				other.Guards = guards
				if a := t.step(other); !errors.Is(a.Err, work.ErrConflict) {
					t.Fatalf("the same key for other guards: %v, want a conflict", a.Err)
				}
			}
		}},
		{"a batch keeps the guards of each item", func(t *trial) {
			requests := []work.Request{guarded("q"), added("q"), guarded("r"), guarded("q")}
			requests[2].Guards = []string{"s3://bucket/{queue}"}
			for i, a := range t.steps(requests...) {
				if a.Err != nil || !slices.Equal(t.get(a.Item.ID).Guards, requests[i].Named()) {
					t.Fatalf("request %d: kept %q, %v", i, t.get(a.Item.ID).Guards, a.Err)
				}
			}
		}},
		{"too many guards, and those that nobody could open, are refused", func(t *trial) {
			many := make([]string, tenure.MaxGuards+1)
			for i := range many {
				many[i] = fmt.Sprintf("s3://bucket/%d", i)
			}
			full := "s3://bucket/"
			full += strings.Repeat("x", tenure.MaxText-len(full))
			long := full[:len(full)-len("{id}")] + "{id}" // only once it is expanded
			for _, targets := range [][]string{
				many,
				{long},
				{""},
				{"s3://bucket/a\nb"},
				{"s3://bucket/\xff"},
				{"out/{id}.json"},
				{"/srv/../etc/{id}"},
				{"postgres://ann:secret@db.example.com/app#x"},
			} {
				req := added("q")
				req.Guards = targets
				if a := t.step(req); !errors.Is(a.Err, work.ErrInvalid) {
					t.Fatalf("%.60q: %v, want invalid", targets, a.Err)
				}
			}
			if n := len(t.all()); n > 0 {
				t.Fatalf("bad guards have left %d items", n)
			}
			req := added("q")
			req.Guards = many[1:]
			req.Guards[0] = full
			t.must(req)
		}},
		{"every act has a stamp above the old owner's and below the next one's", func(t *trial) {
			acts := map[string]func(h held) work.Request{
				"requeue": func(h held) work.Request {
					t.pass(h.Record.Deadline)
					return requeue(h.Item)
				},
				"replay": func(h held) work.Request {
					end := h.by(work.Fail)
					end.Final, end.Error = true, "broken"
					t.must(end)
					return hand(work.Replay, h.ID)
				},
			}
			for _, verb := range []work.Verb{work.Cancel, work.Reassign, work.Takeover} {
				acts[string(verb)] = func(h held) work.Request { return hand(verb, h.ID) }
			}
			for name, act := range acts {
				t.must(guarded(name))
				old := t.claimed(name, t.lapsing())
				req := act(old)
				for range 2 { // a copy of an act says the same
					a := t.must(req)
					stamp := a.Item.Record.Stamp()
					if !slices.Equal(a.Item.Guards, old.Guards) || stamp.Key != old.Key() ||
						stamp.Grant != req.Secret.Grant() {
						t.Fatalf("%s: answered with the guards %q and the stamp %v", name, a.Item.Guards, stamp)
					}
					next, err := old.Mark().Admit(stamp)
					if err != nil {
						t.Fatalf("%s: a guard refuses its stamp: %v", name, err)
					}
					if _, err := next.Admit(old.Record.Stamp()); !errors.Is(err, fence.ErrStale) {
						t.Fatalf("%s: a guard with its stamp answers the old owner %v, want stale", name, err)
					}
				}
				t.nextOwner(name, t.get(old.ID))
			}
		}},
	}
}

// nextOwner makes an item claimable, claims it, and checks that its token is
// above that of the act before.
func (t *trial) nextOwner(queue string, it work.Item) {
	t.Helper()
	c := claimOf(queue)
	c.Owner = "cleo" // for whom it may be reserved
	switch it.State {
	case work.Cancelled:
		t.must(hand(work.Replay, it.ID))
	case work.Running:
		t.must(hand(work.Reassign, it.ID))
	case work.Waiting:
		if it.Ready.After(t.now()) { // requeued
			t.must(hand(work.RunNow, it.ID))
		}
	}
	got := t.claim(c)
	if len(got) != 1 || got[0].Record.Token <= it.Record.Token || !slices.Equal(got[0].Guards, it.Guards) {
		t.Fatalf("%s: after token %d the next owner got %+v", queue, it.Record.Token, got)
	}
}
