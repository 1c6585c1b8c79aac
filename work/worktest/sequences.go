package worktest

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func sequences() []check {
	return []check{
		{"random requests follow the law", func(t *trial) {
			for i := range t.many(8, 3) {
				by := &author{trial: t, queue: fmt.Sprintf("sequence/%d", i)}
				for range t.many(60, 30) {
					by.act(1)
				}
			}
		}},
		{"random batches follow the law", func(t *trial) {
			by := &author{trial: t, queue: "batches"}
			for range t.many(80, 25) {
				by.act(1 + t.rand.IntN(8))
			}
		}},
	}
}

// author invents requests about one queue: sensible ones, late ones and wrong
// ones.
type author struct {
	*trial
	queue  string
	ids    []work.ID
	grants []held // from earlier claims and acts; most have ended
}

func (by *author) act(n int) {
	t := by.trial
	switch t.rand.IntN(6) {
	case 0:
		c := claimOf(by.queue)
		c.Owner, c.Limit, c.TTL = pick(t, "ann", "bob", "cleo"), 1+t.rand.IntN(3), pick(t, brief, long, 2*long)
		if len(by.grants) > 0 && t.rand.IntN(5) == 0 {
			c.Secret, c.Again = pick(t, by.grants...).secret, t.rand.IntN(2) == 0
		}
		for _, it := range t.claim(c) {
			by.grants = append(by.grants, held{it, c.Secret})
		}
	case 1:
		by.letTimePass()
	case 2:
		by.deliver()
	default:
		var requests []work.Request
		for range n {
			requests = append(requests, by.request())
		}
		t.steps(requests...)
	}
}

func (by *author) request() work.Request {
	t := by.trial
	if len(by.ids) == 0 || t.rand.IntN(6) == 0 {
		req := added(by.queue)
		req.Priority, req.Limit = t.rand.IntN(3)-1, pick(t, 0, 1, 2)
		req.Delay = pick(t, 0, 0, brief, long)
		req.Unique = pick(t, "", "", "one", "two")
		req.Payload = pick(t, nil, []byte("a"), []byte("b"))
		if len(by.ids) > 0 && t.rand.IntN(8) == 0 {
			req.ID = pick(t, by.ids...)
		}
		by.ids = append(by.ids, req.ID)
		return req
	}
	if len(by.grants) > 0 && t.rand.IntN(10) < 6 {
		return by.owner()
	}
	id := pick(t, by.ids...)
	if t.rand.IntN(3) == 0 {
		req := requeue(t.get(id))
		req.ID = id
		if !req.Token.Valid() {
			req.Token = 1
		}
		return req
	}
	req := hand(pick(t,
		work.Cancel, work.Reassign, work.Reassign, work.Takeover, work.Replay, work.Replay, work.RunNow), id)
	req.TTL = pick(t, 0, brief, long)
	if req.Verb == work.Replay {
		req.TTL, req.Again, req.Delay = 0, t.rand.IntN(3) == 0, pick(t, 0, brief)
	}
	if len(by.grants) > 0 && t.rand.IntN(8) == 0 {
		req.Secret = pick(t, by.grants...).secret
	}
	by.grants = append(by.grants, held{
		work.Item{ID: id, Queue: by.queue, Record: tenure.Record{Token: t.get(id).Record.Token + 1}},
		req.Secret,
	})
	return req
}

// owner returns a request of a present or past owner, mostly a recent one.
func (by *author) owner() work.Request {
	t := by.trial
	n := len(by.grants)
	h := by.grants[n-1-t.rand.IntN(min(n, pick(t, 1, 3, 10)))]
	if it := t.get(h.ID); it.Record.Grant == h.secret.Grant() && t.rand.IntN(10) > 0 {
		h.Item = it // an operator's act has burned a token; use that one
	}
	req := h.by(pick(t, work.Heartbeat, work.Report, work.Checkpoint, work.Complete, work.Complete, work.Fail,
		work.Fail, work.Release))
	switch req.Verb {
	case work.Heartbeat:
		req.TTL = pick(t, 0, 0, brief, 3*long)
	case work.Report:
		req.Progress = pick(t, "", "a third", "half")
	case work.Checkpoint:
		req.State = pick(t, nil, []byte("s"), []byte{0})
	case work.Complete:
		req.Result = pick(t, nil, []byte("r1"), []byte("r2"))
		for _, name := range []string{"x", "y"} {
			if t.rand.IntN(2) == 0 {
				req.Effects = append(req.Effects, work.Emission{
					Name: name, Body: []byte(name), AtMostOnce: t.rand.IntN(2) == 0,
				})
			}
		}
	case work.Fail:
		req.Error, req.Final, req.Delay = pick(t, "", "broken"), t.rand.IntN(6) == 0,
			pick(t, 0, time.Microsecond, brief)
	case work.Release:
		req.Delay = pick(t, 0, 0, brief)
	}
	if !req.Token.Valid() {
		req.Token = 1
	}
	return req
}

// deliver takes effects and settles some of them.
func (by *author) deliver() {
	t := by.trial
	d := dispatcher(1)
	d.Grant = tenure.Secret("00000000000000000000000000000001").Grant()
	for _, e := range t.take(work.Taking{Stamp: d, Limit: t.rand.IntN(3), Hold: pick(t, brief, long)}) {
		s := work.Settlement{
			Effect: e.EffectID, Attempt: e.Attempts - t.rand.IntN(2), Stamp: d,
			State: pick(t, work.EffectStates...), Delay: pick(t, 0, brief), Error: pick(t, "", "no answer"),
		}
		t.settle(s)
		if t.rand.IntN(3) == 0 {
			t.settle(s)
		}
		if t.rand.IntN(3) == 0 {
			t.settle(work.Settlement{
				Effect: e.EffectID, Attempt: e.Attempts, State: pick(t, work.EffectStates...), Actor: "olga",
				Note: "looked",
			})
		}
	}
}

// letTimePass moves the clock: a little, far, to the very edge of a time in an
// item, or not at all.
func (by *author) letTimePass() {
	t := by.trial
	if t.Advance == nil {
		if t.rand.IntN(4) == 0 {
			t.pass(t.now().Add(brief))
		}
		return
	}
	switch t.rand.IntN(4) {
	case 0:
		t.Advance(time.Microsecond)
	case 1:
		t.Advance(long + time.Second)
	default:
		if len(by.ids) == 0 {
			return
		}
		it := t.get(pick(t, by.ids...))
		edge := pick(t, it.Ready, it.Record.Deadline).Add(pick(t, -time.Microsecond, 0, time.Microsecond))
		if left := edge.Sub(t.now()); left > 0 && left < 100*long {
			t.Advance(left)
		}
	}
}
