package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// desk is the part of a store that awards which runs in a client's process, and ends with it. It knows which bids it has left, is told what was granted to them, answers whoever asks for that, and gives back what nobody asks for.
type desk struct {
	s      *turns
	c      *client
	life   int
	stakes []*stake
	seen   map[string]tenure.Record // when a key was last refused
}

// stake is a bid as its maker knows it.
type stake struct {
	d       *desk
	id      int
	request tenure.Request // with its secret
	sent    instant        // on the client's own clock
	step    int            // at which it was put into its place, if that is known,
	gone    bool           // and that it is not there any more

	awarded bool // it was granted, and this is known here,
	record  tenure.Record
	by      instant // when the release was sent, by another's clock: of no use to anybody
	claimed bool    // and whoever asked for it knows,
	given   bool    // or it is being given back,
	over    bool    // or has been,
	ended   int     // at this step or before it
}

const (
	// unclaimed is how long what was granted waits for whoever made the bid, if somebody watches; headStart, if nobody does.
	unclaimed = 250 * time.Millisecond
	headStart = 20 * time.Millisecond
)

// errGivenBack is why a request is not answered whose bid was granted when nobody seemed to want it any more.
var errGivenBack = errors.New("the key was granted, and is being given back")

// desk is a client's: a new one for each of its lives.
func (s *turns) desk(c *client) *desk {
	if s.desks[c] == nil {
		s.desks[c] = &desk{s: s, c: c, life: c.life, seen: map[string]tenure.Record{}}
	}
	return s.desks[c]
}

// soon does something in this process, if it still lives.
func (d *desk) soon(at time.Duration, do func()) {
	if d.c.life == d.life {
		d.c.soon(at, do)
	}
}

// watches reports whether somebody here is woken for a key.
func (d *desk) watches(key string) bool {
	return slices.ContainsFunc(d.s.base().watches, func(t *watch) bool { return t.c == d.c && t.key == key })
}

// bid makes a bid of a request that is about to be sent.
func (d *desk) bid(req tenure.Request) *stake {
	d.s.bids++
	k := &stake{d: d, id: d.s.bids, request: req, sent: d.c.Now()}
	d.stakes = append(d.stakes, k)
	return k
}

// left is what is left of a lease that was granted to a bid. It counts from the sending of the bid.
func (k *stake) left() time.Duration {
	switch w := k.d.s.w; {
	case w.mutant.is("award-full-term"):
		return k.request.TTL
	case w.mutant.is("award-releasers-clock"):
		return k.by.Add(k.request.TTL).Sub(k.d.c.Now())
	}
	sent := k.sent
	if k.d.s.w.mutant.is("award-from-last-bid") {
		for _, other := range k.d.stakes {
			if other.request.Secret == k.request.Secret {
				sent = max(sent, other.sent)
			}
		}
	}
	return k.request.TTL - k.d.c.Now().Sub(sent)
}

// claim answers a request whose bid is known to have been granted: it needs not ask the server.
func (d *desk) claim(req tenure.Request) (store.Answer, bool) {
	w := d.s.w
	for _, k := range d.stakes {
		if !k.awarded || k.claimed || k.over || k.request.Secret != req.Secret {
			continue
		}
		if k.given && !w.mutant.is("claimed-while-given") {
			w.cover("award", "asked for while given back")
			return store.Failed(1, errGivenBack)[0], true
		}
		k.claimed = true
		w.cover("award", "claimed")
		if k.left() <= k.request.TTL/10 {
			w.cover("award", "claimed too late")
		}
		w.say(d.c.name, "knows that its bid for %s was granted: %s are left", req.Key, k.left())
		return store.Answer{Record: k.record, Now: k.record.Deadline.Add(-k.left())}, true
	}
	return store.Answer{}, false
}

// answered takes in what the server answered to an acquire, and what the bid has come to that went with it.
func (d *desk) answered(req tenure.Request, k *stake, step int, a store.Answer) store.Answer {
	w := d.s.w
	switch {
	case a.Err == nil:
		for _, other := range d.stakes {
			if other.request.Secret != req.Secret {
				continue
			}
			if other.given && !w.mutant.is("claimed-while-given") {
				w.cover("award", "asked for while given back")
				// a server that was put back has forgotten both: copies of the release may be on their way, so it is given back once more
				if other.over && step > other.ended {
					again := d.bid(req)
					again.awarded, again.record = true, a.Record
					d.giveUp(again)
				}
				return store.Failed(1, errGivenBack)[0]
			}
			other.claimed = !w.mutant.is("claims-only-the-told")
		}
		if g := w.judge.grants[req.Secret.Grant()]; g != nil && g.bid != nil {
			w.cover("award", "answered by the server")
		}
	case errors.Is(a.Err, tenure.ErrHeld):
		d.seen[req.Key] = a.Record
		if k != nil {
			k.step = step
			d.emptied(req.Key, step)
		}
		for _, other := range d.stakes { // somebody else here waits now
			if other.awarded && other.request.Key == req.Key && other.request.Secret != req.Secret {
				d.giveUp(other)
			}
		}
	}
	return a
}

// emptied notes that what was in a place before a step is not there any more.
func (d *desk) emptied(key string, step int) {
	for _, k := range d.stakes {
		if k.step > 0 && k.step < step && k.request.Key == key {
			k.gone = true
		}
	}
}

// told takes in that a bid was granted.
func (d *desk) told(k *stake, rec tenure.Record, by instant) {
	if k.claimed {
		return
	}
	k.awarded, k.record, k.by = true, rec, by
	d.s.w.say(d.c.name, "is told that its bid for %s was granted", k.request.Key)
	wait := headStart
	for _, t := range slices.Clone(d.s.base().watches) {
		if t.c == d.c && t.key == k.request.Key {
			wait = unclaimed
			late := upTo(d.c.rng, 2*unclaimed)
			if !d.s.w.fault(LateHint) {
				late = 0
			}
			d.soon(d.s.w.now+late, t.hint)
		}
	}
	d.c.timer(wait, func() { d.giveUp(k) })
}

// watched takes in that a watch begins, and wakes whoever watches if the key has changed since it was refused. It reports that it does so.
func (d *desk) watched(t *watch) bool {
	if before, refused := d.seen[t.key]; !refused || !sameTerm(before, d.s.records[t.key].record) {
		d.soon(d.s.w.now+between(d.c.rng, time.Millisecond, 5*time.Millisecond), t.hint)
	}
	return true
}

// unwatched takes in that somebody here is not woken any more: if it was the last, its bid is withdrawn, and what was granted to it is given back.
func (d *desk) unwatched(key string) {
	if d.watches(key) {
		return
	}
	left := false
	for _, k := range d.stakes {
		if k.request.Key != key {
			continue
		}
		left = left || !k.gone && !k.claimed
		if k.awarded {
			d.c.timer(headStart, func() { d.giveUp(k) })
		}
	}
	if !left {
		return
	}
	d.s.w.ops++
	d.s.w.carry(d.s.line(d.c), func(_ message, reply func(func())) {
		d.s.leave(key, d)
		d.s.steps++
		step := d.s.steps
		reply(func() { d.emptied(key, step) })
	}, func(error) {}) // then it becomes old
}

// giveUp gives a key back that nobody asks for.
func (d *desk) giveUp(k *stake) {
	if k.claimed || k.given {
		return
	}
	k.given = true
	w := d.s.w
	w.cover("award", "given back")
	w.say(d.c.name, "gives %s back, which its bid was granted", k.request.Key)
	req := tenure.Request{Verb: tenure.Release, Key: k.request.Key, Secret: k.request.Secret, Failed: true}
	var release func()
	release = func() {
		if k.left() <= 0 {
			k.over, k.ended = true, d.s.steps
			return
		}
		d.c.apply([]tenure.Request{req}, callTimeout, func(answers []store.Answer) {
			if errors.Is(answers[0].Err, store.ErrUnknown) {
				d.c.timer(meeting, release)
				return
			}
			k.over, k.ended = true, d.s.steps
		})
	}
	release()
}
