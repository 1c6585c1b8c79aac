package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// client is one process that uses leases. It drives an engine as the runtime of
// package croft does. It tells the engine what happened, takes Ready, and
// carries that out on the simulated network and clock.
type client struct {
	host
	instance string
	engine   *engine.Engine // one for each life; nil while the process is dead
	closing  bool           // the engine is closed, and the process ends soon
	away     time.Duration  // how long the process then stays away
	jobs     []*job
	leases   []*lease // live leases
	watches  map[string]*watch
	asks     []*ask // secrets that the engine may still be granted
	routines []*routine
	prompt   bool         // the last call of the store was fast
	caller   *engine.Call // has just begun, and may call the store itself
	ticks    instant      // when the timer rings
	armed    int          // number of the timer that counts
}

const (
	jobsEach = 3 // jobs of a client at a time
	// These are the same as in the runtime of package croft.
	glance       = time.Second // a timer is never set to later than this
	promptly     = 10 * time.Millisecond
	lone         = time.Second
	closeWait    = 3 * time.Second
	releaseBound = 2 * time.Second
	actBound     = 2 * callTimeout
)

var (
	errTimeout = fmt.Errorf("no answer: %w", context.DeadlineExceeded)
	errClosed  = errors.New("the client is closed")
	errLeft    = errors.New("the caller has left")
)

// start begins a life of the process.
func (c *client) start() {
	c.instance = fmt.Sprintf("%s-%d", c.name, c.life)
	c.watches = map[string]*watch{}
	c.engine = engine.New(engine.Options{
		Observed: true, Watches: c.w.store.base().hints, Acts: c.w.store.base().hints,
		CallTimeout: callTimeout, Random: c.rng.Float64, NewSecret: c.newSecret,
	})
	if c == c.w.operator {
		return // the nemesis tells it when to act
	}
	for i := range jobsEach {
		j := &job{c: c, name: fmt.Sprintf("%s.%d", c.name, i)}
		c.jobs = append(c.jobs, j)
		c.soon(c.w.now+upTo(c.rng, time.Second), j.begin)
	}
}

// crash ends the process, and everything it knows. Another process starts in
// its place some time later.
func (c *client) crash(away time.Duration) {
	c.drop()
	c.life++
	c.engine, c.closing, c.jobs, c.leases, c.asks, c.ticks = nil, false, nil, nil, nil, 0
	c.w.forgetClient(c)
	c.soon(c.w.now+away, c.start)
}

// drop ends all calls of the process.
func (c *client) drop() {
	for _, rt := range c.routines {
		rt.abandon()
	}
	c.routines = nil
}

// close closes the client, like a process that ends in good order. The process
// ends when the engine is idle, or after closeWait.
func (c *client) close(away time.Duration) {
	if c.engine == nil || c.closing {
		return
	}
	c.w.say(c.name, "closes its client")
	c.closing, c.away = true, away
	c.timer(closeWait, c.exit)
	c.engine.Close(c.Now(), errClosed)
	c.carryOut()
}

// exit ends a process whose client is closed.
func (c *client) exit() {
	switch {
	case c.engine.Left() || c.engine.Load().Active > 0:
		c.w.cover("engine", "closed with something left")
	case len(c.asks) > 0:
		c.w.fail(OneTruth, "%s is closed with nothing left, and still asks for %s", c.name, c.asks[0].key)
	default:
		c.w.cover("engine", "closed with nothing left")
	}
	c.w.say(c.name, "ends")
	c.crash(c.away)
}

// forgetClient removes what servers and guards keep for a dead process.
func (w *world) forgetClient(c *client) {
	if v, ok := w.store.(*casServer); ok {
		delete(v.stores, c)
	}
	base := w.store.base()
	base.watches = slices.DeleteFunc(base.watches, func(t *watch) bool { return t.c == c })
	for _, r := range w.resources {
		r.abandon(c)
	}
}

// pending is a call of the engine, and what the process does with its reply.
type pending struct {
	engine.Call
	then func()
	job  *job // the fields from here on are for acquires only
	want acquisition
	// free says that the key was free when the call began. changes counts the
	// changes of the key up to then.
	free    bool
	changes int
}

// begin begins a call.
func (c *client) begin(p *pending) {
	p.Tag = p
	c.engine.Begin(c.Now(), &p.Call)
	c.caller = &p.Call
	c.carryOut()
}

// leave abandons a call after a while, unless it has its reply by then.
func (c *client) leave(p *pending, after time.Duration) {
	c.soon(c.w.now+after, func() {
		c.engine.Abandon(c.Now(), &p.Call, errLeft)
		c.carryOut()
	})
}

// act makes a call that is one request without a lease: an operator's act, or
// one by a deed. It calls then if the outcome is known.
func (c *client) act(req tenure.Request, then func(store.Answer)) {
	if c.engine == nil {
		return
	}
	p := &pending{Call: engine.Call{Request: req, Bound: actBound}}
	p.then = func() {
		if p.Reply.Answer != nil {
			then(*p.Reply.Answer)
		}
	}
	c.begin(p)
}

// carryOut carries out the engine's Ready. It runs after each call of the
// engine.
func (c *client) carryOut() {
	ready, caller := c.engine.Ready(), c.caller
	c.caller = nil
	c.arm(ready.Wake)
	for _, call := range slices.Concat(ready.Raise, ready.Replies) {
		if call.Reply.Lease != nil {
			c.leaseOf(call.Tag.(*pending))
		}
	}
	c.settle(ready.Events)
	for _, key := range ready.Watch {
		c.watch(key)
	}
	for _, key := range ready.Unwatch {
		if t := c.watches[key]; t != nil {
			t.stop()
		} else {
			c.w.fail(NoUnknownPanic, "the engine of %s ends a watch of %s that it did not begin", c.name, key)
		}
	}
	for _, b := range ready.Send {
		c.send(b, c.prompt && len(ready.Send) == 1 && b.Caller != nil && b.Caller == caller)
	}
	for _, l := range ready.Look {
		c.look(l)
	}
	for _, l := range ready.Over {
		if made, is := l.Tag.(*lease); is {
			made.ended()
		}
	}
	for _, call := range ready.Raise {
		c.raise(call.Tag.(*pending))
	}
	for _, call := range ready.Replies {
		if p, waits := call.Tag.(*pending); waits {
			if errors.Is(p.Reply.Err, errLeft) {
				c.w.cover("abandoned", string(p.Request.Verb))
			}
			p.then()
		}
	}
	if c.closing && ready.Idle {
		c.soon(c.w.now, c.exit)
	}
}

// arm sets a timer for the engine's next tick. The timer stands still while the
// machine sleeps, so it is set to at most a glance from now.
func (c *client) arm(wake instant) {
	now := c.Now()
	at := max(min(wake, now.Add(glance)), now+1)
	if wake == renewal.Never || c.ticks > now && c.ticks <= at {
		return
	}
	c.ticks = at
	c.armed++
	n := c.armed
	c.timer(at.Sub(now), func() {
		if n == c.armed {
			c.ticks = 0
			c.engine.Tick(c.Now())
			c.carryOut()
		}
	})
}

// apply makes one call of the store. It calls done once, with an answer for
// each request.
func (c *client) apply(requests []tenure.Request, limit time.Duration, done func([]store.Answer)) {
	finished := false
	finish := once(func(answers []store.Answer, err error) {
		finished = true
		if err != nil {
			answers = store.Failed(len(requests), err)
		}
		for i := range answers {
			c.w.coverAnswer(requests[i], answers[i])
		}
		done(answers)
	})
	c.routines = slices.DeleteFunc(c.routines, func(rt *routine) bool { return rt.over })
	abandon := c.w.store.apply(c, requests, finish)
	c.timer(limit, func() {
		if !finished {
			abandon()
		}
		finish(nil, errTimeout)
	})
}

// send carries out a batch and brings the engine its answers. If the caller
// makes the call itself, it gives up sooner.
func (c *client) send(b *engine.Batch, byCaller bool) {
	holders := make([]*lease, len(b.Requests))
	for i, req := range b.Requests {
		switch req.Verb {
		case tenure.Acquire:
			a := c.w.judge.asking[req.Secret.Grant()]
			a.key = req.Key
			a.copies++
		case tenure.Renew, tenure.Report, tenure.Checkpoint:
			holders[i] = c.holder(req)
		}
		c.w.say(c.name, "sends: %s %s", req.Verb, req.Key)
		if i > 0 {
			c.w.cover("engine", "several in a batch")
			if before := b.Requests[i-1]; before.Verb == tenure.Release && req.Verb == tenure.Acquire &&
				before.Key == req.Key {
				c.w.cover("engine", "passed on")
			}
		}
	}
	if c.engine.Load().InFlight > 1 {
		c.w.cover("engine", "overtook a batch")
	}
	limit := callTimeout
	if byCaller {
		limit = lone
	}
	began := c.Now()
	c.apply(b.Requests, limit, func(answers []store.Answer) {
		c.prompt = c.Now().Sub(began) <= promptly
		c.engine.Answered(c.Now(), b, answers)
		for i, l := range holders {
			if l == nil {
				continue
			}
			if errors.Is(answers[i].Err, tenure.ErrNotOwned) {
				c.w.judge.told(l)
			}
			c.w.judge.belief(l)
			c.watchDeadline(l)
		}
		c.carryOut()
	})
}

// raise raises the fence at all guards of a granted acquire. If a guard has
// seen a newer token than the store, the engine asks for a token above it.
func (c *client) raise(p *pending) {
	l := c.leaseOf(p)
	outcomes, due := make([]error, len(p.want.guards)), len(p.want.guards)
	for i, res := range p.want.guards {
		res.raise(c, l.Stamp(), func(err error) {
			outcomes[i] = err
			if due--; due == 0 {
				above, failure := engine.Above(outcomes, epoch.Add(c.w.now))
				c.engine.Raised(c.Now(), &p.Call, above, failure)
				c.carryOut()
			}
		})
	}
}

// look reads the record of a stalled lease, because another process may have
// reported progress.
func (c *client) look(l *engine.Lease) {
	c.w.ops++
	c.w.store.get(c, l.Key, func(rec tenure.Record, now time.Time, err error) {
		if err == nil {
			c.engine.Looked(c.Now(), l, rec, now)
			c.carryOut()
		}
	})
}

// watch is a client's subscription to hints about a key.
type watch struct {
	c   *client
	key string
}

// watch begins to pass on hints about a key.
func (c *client) watch(key string) {
	t, base := &watch{c: c, key: key}, c.w.store.base()
	c.watches[key] = t
	c.soon(c.w.now+between(c.rng, time.Millisecond, 20*time.Millisecond), func() {
		switch {
		case c.watches[key] != t:
		case !base.up():
			t.broken()
		default:
			base.watches = append(base.watches, t)
			t.tell(engine.Watched)
		}
	})
}

// tell passes on a hint, unless the watch has ended.
func (t *watch) tell(h engine.Hint) {
	if t.c.watches[t.key] == t {
		t.c.engine.Hint(t.c.Now(), t.key, h, nil)
		t.c.carryOut()
	}
}

// acted tells the engine that an operator has acted on a key.
func (t *watch) acted(key string) {
	if t.c.watches[t.key] == t {
		t.c.engine.Hint(t.c.Now(), key, engine.Acted, nil)
		t.c.carryOut()
	}
}

// hint tells the engine that the key may have changed.
func (t *watch) hint() { t.tell(engine.Changed) }

// broken tells the engine that no more hints come.
func (t *watch) broken() {
	t.close()
	t.tell(engine.Broken)
}

// stop ends the watch, because nobody waits any more.
func (t *watch) stop() {
	delete(t.c.watches, t.key)
	t.close()
}

func (t *watch) close() {
	base := t.c.w.store.base()
	base.watches = slices.DeleteFunc(base.watches, func(other *watch) bool { return other == t })
}

// coverAnswer counts the kind of an answer.
func (w *world) coverAnswer(req tenure.Request, a store.Answer) {
	var held *tenure.HeldError
	var not *tenure.NotOwnedError
	switch {
	case a.Err == nil:
		if a.Awaited {
			w.cover("engine", "others wait")
		}
		if req.Verb == tenure.Acquire && w.judge.asking[req.Secret.Grant()].copies > 1 {
			w.cover("transition", "acquire again")
		}
	case errors.As(a.Err, &held):
		w.cover("refusal", "held: "+string(held.Why))
	case errors.As(a.Err, &not):
		w.cover("refusal", "not owned: "+string(not.Why))
	case errors.Is(a.Err, store.ErrUnknown):
		w.cover("refusal", "unknown")
	default:
		w.fail(NoUnknownPanic, "a %s of %s was refused as bad input: %v", req.Verb, req.Key, a.Err)
	}
}
