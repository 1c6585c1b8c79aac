package sim

import (
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// server is a lease store, as its clients see it.
type server interface {
	// apply carries out a client's requests. It calls done once, at the client,
	// when the answers have arrived, or with an error if it is known that none
	// will.
	apply(c *client, requests []tenure.Request, done func([]store.Answer, error)) (abandon func())
	// get reads a key's record and the store's time.
	get(c *client, key string, done func(tenure.Record, time.Time, error))
	// base returns the state that all stores have in common.
	base() *core
	// halt undoes unfinished work, as if the server stopped.
	halt()
}

// core is the memory and the clock of a store. It is the truth. Only the
// rules of its store change it.
type core struct {
	w       *world
	records map[string]kept
	written []former // the replaced states, for undoing
	clock   dial
	down    time.Duration // unreachable before this true time
	hints   bool          // it wakes waiters,
	inTurn  bool          // the first of them at once, and the others later
	watches []*watch
}

// kept is a store's entry for a key.
type kept struct {
	record   tenure.Record
	version  cas.Version // for stores with versions: never used twice, but a rewind brings old ones back
	modified time.Time
}

// former is the entry that a write has replaced.
type former struct {
	key  string
	kept kept
	at   time.Duration
}

func newCore(w *world, hints bool) *core {
	return &core{w: w, records: map[string]kept{}, hints: hints}
}

func (g *core) base() *core { return g }

// halt does nothing where every change is one step.
func (g *core) halt() {}

func (g *core) get(c *client, key string, done func(tenure.Record, time.Time, error)) {
	g.w.carry(g.conn(c), func(_ message, reply func(func())) {
		rec, now := g.held(key), g.now()
		reply(func() { done(rec, now, nil) })
	}, func(err error) { done(tenure.Record{}, time.Time{}, err) })
}

// now returns the store's time.
func (g *core) now() time.Time { return epoch.Add(time.Duration(g.clock.at(g.w.now))) }

// up reports whether the server answers.
func (g *core) up() bool { return g.w.now >= g.down }

// conn returns a client's connection to the store.
func (g *core) conn(c *client) conn { return conn{h: &c.host, up: g.up, cuts: true, began: -1} }

// held returns a key's record. It drops the record first if its retention is
// over.
func (g *core) held(key string) tenure.Record {
	rec := g.records[key].record
	if !rec.IsZero() && rec.Droppable(g.now(), retention) {
		g.forget(key)
		return tenure.Record{}
	}
	return rec
}

// forget drops a record whose retention is over.
func (g *core) forget(key string) {
	k := g.records[key]
	rec := k.record
	g.written = append(g.written, former{key, k, g.w.now})
	delete(g.records, key)
	g.w.cover("transition", "dropped")
	g.w.say("store", "drops the record of %s, last token %s", key, short(rec.Token))
	g.w.judge.dropped(key)
}

// write makes a change take effect.
func (g *core) write(req tenure.Request, next kept, m message) {
	before := g.records[req.Key]
	g.written = append(g.written, former{req.Key, before, g.w.now})
	next.modified = g.now()
	g.records[req.Key] = next
	g.w.judge.committed(req, before.record, next.record, m)
	if req.Verb != tenure.Renew && req.Verb != tenure.Report && req.Verb != tenure.Checkpoint {
		g.wake(req.Key)
	}
	if req.Verb.ByHand() {
		g.announce(req.Key)
	}
}

// announce tells clients that an operator has acted on a key.
func (g *core) announce(key string) {
	for _, t := range g.watches {
		if t.key == engine.Acts && !g.w.fault(LostHint) {
			t.c.soon(g.w.now+between(t.c.rng, time.Millisecond, 5*time.Millisecond), func() { t.acted(key) })
		}
	}
}

// wake sends hints to the watches of a key.
func (g *core) wake(key string) {
	if !g.hints {
		return
	}
	first := true
	for _, t := range g.watches {
		if t.key != key {
			continue
		}
		delay := between(t.c.rng, time.Millisecond, 5*time.Millisecond)
		if g.inTurn && !first {
			delay += turns.Grace
		}
		if first = false; g.w.fault(LostHint) {
			continue
		}
		if g.inTurn && g.w.fault(LateHint) {
			delay += upTo(t.c.rng, 3*time.Second)
		}
		t.c.soon(g.w.now+delay, t.hint)
	}
}

// awaited reports whether clients other than but watch a key.
func (g *core) awaited(key string, but *client) bool {
	return slices.ContainsFunc(g.watches, func(t *watch) bool { return t.key == key && t.c != but })
}

// apart carries out a batch for stores that know no batches. Requests on one
// key run one after the other, beside those on other keys. If the batch is
// abandoned, the requests that were answered by then keep their answers.
func apart(
	requests []tenure.Request, one func(tenure.Request, func(store.Answer)) (abandon func()),
	done func([]store.Answer, error),
) func() {
	answers, due := store.Failed(len(requests), errTimeout), len(requests)
	abandons := make([]func(), len(requests)) // of requests in flight
	var next func(key string, from int)
	next = func(key string, from int) {
		n := slices.IndexFunc(requests[from:], func(r tenure.Request) bool { return r.Key == key })
		if n < 0 {
			return
		}
		i, answered := from+n, false
		abandon := one(requests[i], func(a store.Answer) {
			answers[i], answered, abandons[i] = a, true, nil
			if due--; due == 0 {
				done(answers, nil)
			}
			next(key, i+1)
		})
		if !answered {
			abandons[i] = abandon
		}
	}
	for i, req := range requests {
		if !slices.ContainsFunc(requests[:i], func(r tenure.Request) bool { return r.Key == req.Key }) {
			next(req.Key, i)
		}
	}
	return func() {
		for _, abandon := range abandons {
			if abandon != nil {
				abandon()
			}
		}
		done(answers, nil)
	}
}

// rewind undoes the last n writes.
func (g *core) rewind(n int, why string) {
	for i := 0; i < n && len(g.written) > 0; i++ {
		last := g.written[len(g.written)-1]
		g.written = g.written[:len(g.written)-1]
		g.records[last.key] = last.kept
	}
	for _, key := range g.w.keys {
		g.w.judge.forgot(key, g.records[key].record, why)
		g.wake(key)
	}
}

// since returns how many writes were made after a true time.
func (g *core) since(t time.Duration) int {
	n := 0
	for n < len(g.written) && g.written[len(g.written)-1-n].at > t {
		n++
	}
	return n
}

// past returns a key's entry at a true time.
func (g *core) past(key string, t time.Duration) kept {
	k := g.records[key]
	for i := len(g.written) - 1; i >= 0 && g.written[i].at > t; i-- {
		if g.written[i].key == key {
			k = g.written[i].kept
		}
	}
	return k
}
