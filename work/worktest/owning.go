package worktest

import (
	"errors"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func owning() []check {
	return []check{
		{"a heartbeat moves the deadline, a report and a checkpoint do not", func(t *trial) {
			h := t.running("q")
			for range 3 {
				if t.Advance != nil {
					t.Advance(time.Second)
				}
				t.must(h.by(work.Heartbeat))
				report := h.by(work.Report)
				report.Progress = pick(t, "page 3 of 7", "é", "")
				t.must(report)
				save := h.by(work.Checkpoint)
				save.State = pick(t, []byte("state"), nil, []byte{0})
				t.must(save)
			}
		}},
		{"a heartbeat with another TTL", func(t *trial) {
			h := t.running("q")
			longer := h.by(work.Heartbeat)
			longer.TTL = 3 * long
			t.must(longer)
			shorter := h.by(work.Heartbeat)
			shorter.TTL = time.Minute
			if a := t.must(shorter); a.Item.Record.Deadline.Before(a.Now.Add(2 * long)) {
				t.Fatalf("a shorter TTL brought the deadline nearer: it counts on the one it was told before")
			}
		}},
		{"the token decides, not the time", func(t *trial) {
			for _, verb := range []work.Verb{
				work.Heartbeat, work.Report, work.Checkpoint, work.Complete, work.Fail, work.Release,
			} {
				h := t.lapsed("late/" + string(verb))
				if a := t.step(h.by(verb)); a.Err != nil {
					t.Fatalf("%s after the deadline, while nobody else was granted: %v", verb, a.Err)
				}
			}
		}},
		{"a wrong grant changes nothing", func(t *trial) {
			h := t.running("q")
			for _, verb := range []work.Verb{
				work.Heartbeat, work.Report, work.Checkpoint, work.Complete, work.Fail, work.Release,
			} {
				req := h.by(verb)
				req.Secret = tenure.NewSecret()
				if a := t.step(req); !errors.Is(a.Err, fence.ErrCollision) {
					t.Fatalf("%s with the right token and another secret: %v", verb, a.Err)
				}
				req = h.by(verb)
				req.Token--
				if a := t.step(req); !errors.Is(a.Err, work.ErrStale) {
					t.Fatalf("%s with a token below: %v", verb, a.Err)
				}
				req = h.by(verb)
				req.Token++
				if a := t.step(req); !errors.Is(a.Err, fence.ErrCollision) {
					t.Fatalf("%s with a token that was never issued: %v", verb, a.Err)
				}
			}
		}},
		{"an item that nobody has claimed has no owner", func(t *trial) {
			id := t.must(added("q")).Item.ID
			for _, verb := range []work.Verb{work.Heartbeat, work.Complete, work.Fail} {
				if a := t.step(work.Request{Verb: verb, ID: id, Token: 7, Secret: tenure.NewSecret()}); a.Err == nil {
					t.Fatalf("%s of an item that was never claimed", verb)
				}
			}
		}},
		{"an unknown id is named", func(t *trial) {
			for _, verb := range work.Verbs {
				if verb == work.Add {
					continue
				}
				req := hand(verb, work.NewID())
				req.Token, req.Owner = 1, "ann"
				if a := t.step(req); !errors.Is(a.Err, work.ErrNotFound) {
					t.Fatalf("%s of an unknown id: %v, want not found", verb, a.Err)
				}
			}
		}},
		{"an item that was given back is over for its owner", func(t *trial) {
			for _, end := range []work.Verb{work.Complete, work.Fail, work.Release} {
				h := t.running("over/" + string(end))
				t.must(h.by(end))
				for _, verb := range []work.Verb{
					work.Heartbeat, work.Report, work.Checkpoint, work.Complete, work.Fail, work.Release,
				} {
					a := t.step(h.by(verb))
					if verb == end && (a.Err != nil || !a.Repeated) {
						t.Fatalf("%s again: %v; a repeated request has the effect of one", verb, a.Err)
					}
					if verb != end && !errors.Is(a.Err, work.ErrState) {
						t.Fatalf("%s after %s: %v, want a state error", verb, end, a.Err)
					}
				}
			}
		}},
		{"bad input is named and changes nothing", func(t *trial) {
			h := t.running("q")
			for name, req := range map[string]work.Request{
				"an oversized checkpoint": {Verb: work.Checkpoint, State: make([]byte, work.MaxPayload+1)},
				"an oversized result":     {Verb: work.Complete, Result: make([]byte, work.MaxPayload+1)},
				"an oversized effect": {Verb: work.Complete, Effects: []work.Emission{
					{Name: "a", Body: make([]byte, work.MaxBody+1)},
				}},
				"two effects of one name": {Verb: work.Complete, Effects: []work.Emission{{Name: "a"}, {Name: "a"}}},
				"an effect without name":  {Verb: work.Complete, Effects: []work.Emission{{}}},
				"too many effects":        {Verb: work.Complete, Effects: make([]work.Emission, work.MaxEffects+1)},
				"a long error":            {Verb: work.Fail, Error: strings.Repeat("e", work.MaxError+1)},
				"a negative delay":        {Verb: work.Fail, Delay: -1},
				"a marker of two lines":   {Verb: work.Report, Progress: "a\nb"},
				"a TTL of nothing":        {Verb: work.Heartbeat, TTL: time.Nanosecond},
				"no token":                {Verb: work.Complete, Token: -1},
			} {
				req.ID, req.Secret = h.ID, h.secret
				if req.Token == 0 {
					req.Token = h.Record.Token
				}
				if a := t.step(req); !errors.Is(a.Err, work.ErrInvalid) {
					t.Fatalf("%s: %v, want invalid", name, a.Err)
				}
			}
			t.must(h.by(work.Complete))
		}},
	}
}
