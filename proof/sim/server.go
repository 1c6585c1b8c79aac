package sim

import (
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// server is a lease store as its clients see it.
type server interface {
	// apply carries requests of a client out; done is called once at the client when the answers have come, or with an error when it is known that none will.
	apply(c *client, requests []tenure.Request, done func([]store.Answer, error)) (abandon func())
	// get reads a key's record and the store's time.
	get(c *client, key string, done func(tenure.Record, time.Time, error))
	// base is what all stores have in common.
	base() *ground
	// halt undoes what is under way, as when the server stops.
	halt()
	// restore puts back, with the records, the queues of those who wait.
	restore()
}

// ground is the memory of a store and its clock. What is in it is the truth; only its store's own rules lead there.
type ground struct {
	w       *world
	records map[string]kept
	written []former      // for undoing
	undone  time.Duration // when the oldest write was made that was undone last
	clock   dial
	down    time.Duration // not reached before this true time
	hints   bool          // waiters are woken
	watches []*watch
}

// kept is what a store holds of a key.
type kept struct {
	record   tenure.Record
	version  cas.Version // where there are such, never used twice; a state that is put back has its own
	modified time.Time
}

// former is what a write has replaced.
type former struct {
	key  string
	kept kept
	at   time.Duration
}

func newGround(w *world, hints bool) *ground {
	return &ground{w: w, records: map[string]kept{}, hints: hints}
}

func (g *ground) base() *ground { return g }

// halt undoes nothing, where a change is one step.
func (g *ground) halt()    {}
func (g *ground) restore() {}

func (g *ground) get(c *client, key string, done func(tenure.Record, time.Time, error)) {
	g.w.carry(g.line(c), func(_ message, reply func(func())) {
		rec, now := g.held(key), g.now()
		reply(func() { done(rec, now, nil) })
	}, func(err error) { done(tenure.Record{}, time.Time{}, err) })
}

// now is the store's time.
func (g *ground) now() time.Time { return epoch.Add(time.Duration(g.clock.at(g.w.now))) }

// up reports whether the server answers.
func (g *ground) up() bool { return g.w.now >= g.down }

// line is a client's way here.
func (g *ground) line(c *client) line { return line{h: &c.host, up: g.up, cuts: true, began: -1} }

// held is a key's record, forgotten if its time has come.
func (g *ground) held(key string) tenure.Record {
	rec := g.records[key].record
	if !rec.IsZero() && rec.Droppable(g.now(), retention) {
		g.forget(key)
		return tenure.Record{}
	}
	return rec
}

// forget drops a record that has not mattered for a retention.
func (g *ground) forget(key string) {
	k := g.records[key]
	rec := k.record
	g.written = append(g.written, former{key, k, g.w.now})
	delete(g.records, key)
	g.w.cover("transition", "dropped")
	g.w.say("store", "drops the record of %s, last token %s", key, short(rec.Token))
	g.w.judge.dropped(key)
}

// write is the moment at which a change takes effect.
func (g *ground) write(req tenure.Request, next kept, m message) {
	before := g.records[req.Key]
	g.written = append(g.written, former{req.Key, before, g.w.now})
	next.modified = g.now()
	g.records[req.Key] = next
	g.w.judge.committed(req, before.record, next.record, m)
	if req.Verb != tenure.Renew && req.Verb != tenure.Report {
		g.wake(req.Key)
	}
	if req.Verb.ByHand() {
		g.announce(req.Key)
	}
}

// announce tells clients that an operator has acted on a key.
func (g *ground) announce(key string) {
	for _, t := range g.watches {
		if t.key == engine.Acts && !g.w.fault(LostHint) {
			t.c.soon(g.w.now+between(t.c.rng, time.Millisecond, 5*time.Millisecond), func() { t.acted(key) })
		}
	}
}

// wake hints to those who watch a key.
func (g *ground) wake(key string) {
	if !g.hints {
		return
	}
	for _, t := range g.watches {
		if t.key == key && !g.w.fault(LostHint) {
			t.c.soon(g.w.now+between(t.c.rng, time.Millisecond, 5*time.Millisecond), t.hint)
		}
	}
}

// awaited reports whether others than a client watch a key.
func (g *ground) awaited(key string, but *client) bool {
	return slices.ContainsFunc(g.watches, func(t *watch) bool { return t.key == key && t.c != but })
}

// apart carries out a batch as stores do that know of no batches: the requests
// on one key one after the other, beside those on other keys. If it is
// abandoned, the requests that were answered by then keep their answers.
func apart(
	requests []tenure.Request, one func(tenure.Request, func(store.Answer)) (abandon func()),
	done func([]store.Answer, error),
) func() {
	answers, due := store.Failed(len(requests), errTimeout), len(requests)
	abandons := make([]func(), len(requests)) // of those that are not answered
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
func (g *ground) rewind(n int, why string) {
	g.undone = g.w.now
	for i := 0; i < n && len(g.written) > 0; i++ {
		last := g.written[len(g.written)-1]
		g.undone = last.at
		g.written = g.written[:len(g.written)-1]
		g.records[last.key] = last.kept
	}
	for _, key := range g.w.keys {
		g.w.judge.forgot(key, g.records[key].record, why)
		g.wake(key)
	}
}

// since is how many writes were made after a true time.
func (g *ground) since(t time.Duration) int {
	n := 0
	for n < len(g.written) && g.written[len(g.written)-1-n].at > t {
		n++
	}
	return n
}

// past is what a key's record was at a true time.
func (g *ground) past(key string, t time.Duration) kept {
	k := g.records[key]
	for i := len(g.written) - 1; i >= 0 && g.written[i].at > t; i-- {
		if g.written[i].key == key {
			k = g.written[i].kept
		}
	}
	return k
}
