package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// bidder is the part of an awarding store that runs in a client's process, and
// ends with it. It knows the bids that it has placed, and learns which were
// granted. It answers acquires from granted bids, and gives back keys that
// nobody asks for.
type bidder struct {
	s    *etcdServer
	c    *client
	life int
	bids []*sentBid
	seen map[string]tenure.Record // the record at the last refusal of a key
}

// sentBid is a bid, as its bidder knows it.
type sentBid struct {
	d       *bidder
	id      int
	request tenure.Request // with its secret
	sent    instant        // on the client's own clock
	step    int            // at which it was placed, 0 if unknown
	gone    bool           // it is known to have left the queue

	awarded bool // it is known to be granted
	record  tenure.Record
	by      instant // when the release was sent, on the releaser's clock; only a mutant uses it
	claimed bool    // its request was answered
	given   bool    // it is being given back, or was
	over    bool    // it was given back, or has lapsed
	ended   int     // the step at which it was over, or a later one
}

const (
	// unclaimed is how long a granted bid waits to be claimed while somebody
	// watches the key. headStart is the same if nobody watches.
	unclaimed = 250 * time.Millisecond
	headStart = 20 * time.Millisecond
)

// errGivenBack refuses a request whose bid was granted when nobody seemed to
// want the key any more.
var errGivenBack = errors.New("the key was granted, and is being given back")

// bidder returns a client's bidder: a new one for each life.
func (s *etcdServer) bidder(c *client) *bidder {
	if s.bidders[c] == nil {
		s.bidders[c] = &bidder{s: s, c: c, life: c.life, seen: map[string]tenure.Record{}}
	}
	return s.bidders[c]
}

// soon runs do in this process, if it still lives.
func (d *bidder) soon(at time.Duration, do func()) {
	if d.c.life == d.life {
		d.c.soon(at, do)
	}
}

// watches reports whether somebody in this process watches a key.
func (d *bidder) watches(key string) bool {
	return slices.ContainsFunc(d.s.base().watches, func(t *watch) bool { return t.c == d.c && t.key == key })
}

// bid makes a bid for a request that is about to be sent.
func (d *bidder) bid(req tenure.Request) *sentBid {
	d.s.bids++
	k := &sentBid{d: d, id: d.s.bids, request: req, sent: d.c.Now()}
	d.bids = append(d.bids, k)
	return k
}

// left returns how much time is left of a lease that was granted to the bid.
// The TTL counts from when the bid was sent.
func (k *sentBid) left() time.Duration {
	switch w := k.d.s.w; {
	case w.mutant.is("award-full-term"):
		return k.request.TTL
	case w.mutant.is("award-releasers-clock"):
		return k.by.Add(k.request.TTL).Sub(k.d.c.Now())
	}
	sent := k.sent
	if k.d.s.w.mutant.is("award-from-last-bid") {
		for _, other := range k.d.bids {
			if other.request.Secret == k.request.Secret {
				sent = max(sent, other.sent)
			}
		}
	}
	return k.request.TTL - k.d.c.Now().Sub(sent)
}

// claim answers a request whose bid is known to be granted. It needs no
// message.
func (d *bidder) claim(req tenure.Request) (store.Answer, bool) {
	w := d.s.w
	for _, k := range d.bids {
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

// answered handles the server's answer to an acquire, and what it says about
// the bids of this process.
func (d *bidder) answered(req tenure.Request, k *sentBid, step int, a store.Answer) store.Answer {
	w := d.s.w
	switch {
	case a.Err == nil:
		for _, other := range d.bids {
			if other.request.Secret != req.Secret {
				continue
			}
			if other.given && !w.mutant.is("claimed-while-given") {
				w.cover("award", "asked for while given back")
				// A restored server has forgotten both the grant and the
				// release. Copies of the release may be in flight, so give it
				// back once more.
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
		for _, other := range d.bids { // another call of this process waits now
			if other.awarded && other.request.Key == req.Key && other.request.Secret != req.Secret {
				d.giveUp(other)
			}
		}
	}
	return a
}

// emptied records that bids placed before a step have left the queue.
func (d *bidder) emptied(key string, step int) {
	for _, k := range d.bids {
		if k.step > 0 && k.step < step && k.request.Key == key {
			k.gone = true
		}
	}
}

// told handles the news that a bid was granted.
func (d *bidder) told(k *sentBid, rec tenure.Record, by instant) {
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

// watched handles the beginning of a watch. It wakes the waiters if the key has
// changed since it was refused. It returns true: the watch covers that time
// too.
func (d *bidder) watched(t *watch) bool {
	if before, refused := d.seen[t.key]; !refused || !sameTerm(before, d.s.records[t.key].record) {
		d.soon(d.s.w.now+between(d.c.rng, time.Millisecond, 5*time.Millisecond), t.hint)
	}
	return true
}

// unwatched handles the end of a watch. If it was the last one of the key, the
// bidder withdraws its bid, and gives back a granted key.
func (d *bidder) unwatched(key string) {
	if d.watches(key) {
		return
	}
	left := false
	for _, k := range d.bids {
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
	d.s.w.carry(d.s.conn(d.c), func(_ message, reply func(func())) {
		d.s.leave(key, d)
		d.s.steps++
		step := d.s.steps
		reply(func() { d.emptied(key, step) })
	}, func(error) {}) // if it fails, the bid grows old
}

// giveUp releases a granted key that nobody asks for.
func (d *bidder) giveUp(k *sentBid) {
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
				d.c.timer(firstWait, release)
				return
			}
			k.over, k.ended = true, d.s.steps
		})
	}
	release()
}
