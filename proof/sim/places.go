package sim

import (
	"slices"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// queue is a former state of all places, until a true time.
type queue struct {
	at     time.Duration
	places []place
}

// place is a client's place in the queue of a key. It outlives the client's
// process.
type place struct {
	key string
	d   *bidder // its owner
	bid bid
}

// bid is the content of a place: a request without its secret.
type bid struct {
	tenure.Bid
	id     int
	placed time.Time
	m      message  // the message that brought it
	sent   *sentBid // for the judge; the server does not know it
}

// enter puts a bid into its client's place. A new place is at the end of the
// queue.
func (s *etcdServer) enter(req tenure.Request, t *etcdCall, m message) {
	b := bid{Bid: req.Bid(), id: t.bid.id, placed: s.now(), m: m, sent: t.bid}
	places := slices.Clone(s.places)
	if i := slices.IndexFunc(places, func(p place) bool { return p.key == req.Key && p.d == t.d }); i >= 0 {
		places[i].bid = b
	} else {
		places = append(places, place{key: req.Key, d: t.d, bid: b})
	}
	s.requeue(places)
}

// leave removes a client from the queue of a key.
func (s *etcdServer) leave(key string, d *bidder) {
	s.requeue(slices.DeleteFunc(slices.Clone(s.places), func(p place) bool { return p.key == key && p.d == d }))
}

// next returns the first bid in the queue of a key, without those of but.
func (s *etcdServer) next(key string, but *bidder) *bid {
	for _, p := range s.places {
		if p.key == key && p.d != but {
			b := p.bid
			return &b
		}
	}
	return nil
}

// standing returns the bid as it is in the queue, or nil.
func (s *etcdServer) standing(b *bid) *bid {
	for _, p := range s.places {
		if b != nil && p.bid.id == b.id {
			found := p.bid
			return &found
		}
	}
	return nil
}

// offered removes the first place of a key's queue. Its client was woken with
// the others, and may be dead.
func (s *etcdServer) offered(key string) {
	if i := slices.IndexFunc(s.places, func(p place) bool { return p.key == key }); i >= 0 {
		s.requeue(slices.Delete(slices.Clone(s.places), i, i+1))
	}
}

// requeue replaces all places.
func (s *etcdServer) requeue(places []place) {
	if s.w.profile.Weights[Rewind] > 0 {
		s.former = append(s.former, queue{s.w.now, s.places})
	}
	s.places = places
}

// restore sets the queues back to when the records were as they are now. No
// client is responsible for the bids that come back: their makers may have
// withdrawn them, or hold the key already.
func (s *etcdServer) restore() {
	for len(s.former) > 0 && s.former[len(s.former)-1].at >= s.undone {
		s.places = s.former[len(s.former)-1].places
		s.former = s.former[:len(s.former)-1]
	}
	s.places = slices.Clone(s.places)
	for i := range s.places {
		s.places[i].bid.m.stray = true
	}
}
