package sim

import (
	"time"

	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/tenure"
)

// makeCalm ends all faults: the store comes up, stopped processes go on, and no
// new fault happens.
func (w *world) makeCalm() {
	w.calm, w.calmed = true, w.now
	w.say("world", "faults stop")
	base := w.store.base()
	base.down = w.now
	if s, ok := w.store.(*postgresServer); ok {
		s.halt()
	}
	for _, c := range w.clients {
		c.stopped, c.cut = w.now, w.now
		c.wake()
	}
}

// conclude checks law 9: each waiter gets its key in time, even if the holder
// has died or left.
func (w *world) conclude() {
	w.final = true
	w.say("world", "holders go, only waiters are left")
	if w.profile.Steps {
		return // after clock steps, deadlines may be out of reach
	}
	base := w.store.base()
	for _, c := range w.clients {
		switch end := c.rng.IntN(4); {
		case c.engine == nil:
		case end == 0:
			w.say(c.name, "is gone without a word")
			c.crash(far)
		case end == 1:
			c.close(far)
		default:
			for _, j := range c.jobs {
				if j.l != nil {
					j.release(j.l, false)
				}
			}
		}
	}
	due := map[string]time.Duration{} // when the first waiter of a key must have it
	began, last := w.now, w.now
	for _, key := range w.keys {
		w.fresh(key)
		waiters := 1
		for _, c := range w.clients {
			for _, j := range c.jobs {
				if j.call != nil && j.forever && j.call.Request.Key == key {
					waiters++
				}
			}
		}
		poll := engine.PollMax
		if base.hints {
			poll = engine.PollWatched
		}
		rec := base.records[key].record
		wait := rec.TTL + rec.TTL/10 + 2*poll
		if rec.State == tenure.Free { // a hold, so no lease has to lapse
			wait = max(rec.HoldUntil.Sub(base.now()), 0) + 2*engine.PollSettled
		}
		wait += wait/10 + time.Second // for different clock rates, and for messages
		due[key] = began + wait
		last = max(last, began+wait+time.Duration(waiters)*2*engine.PollSettled)
	}
	for _, key := range w.keys {
		w.until(due[key], func() bool { return w.arrivals[key] > 0 })
		if w.broken == nil && w.arrivals[key] == 0 {
			w.fail(
				Liveness,
				"nobody has got %s within %s of when the faults had stopped and its holder was gone",
				key, due[key]-began,
			)
			return
		}
	}
	w.until(last, func() bool { return w.waits() == nil })
	if j := w.waits(); w.broken == nil && j != nil {
		w.fail(
			Liveness, "%s still waits for %s, %s after the faults had stopped", j.name,
			j.call.Request.Key, last-began,
		)
	}
	w.until(w.now+10*time.Minute, func() bool { return w.busy() == nil }) // periods may take that long
	if c := w.busy(); w.broken == nil && c != nil {
		w.fail(Liveness, "the engine of %s has something left to do for ever: %+v", c.name, c.engine.Load())
	}
}

// busy returns a client whose engine has work left, or nil.
func (w *world) busy() *client {
	for _, c := range append(w.clients, w.operator) {
		if c.engine != nil && c.engine.Load() != (engine.Load{}) {
			return c
		}
	}
	return nil
}

// waits returns a job that still waits for a key, or nil.
func (w *world) waits() *job {
	for _, c := range append(w.clients, w.operator) {
		for _, j := range c.jobs {
			if j.call != nil && j.forever {
				return j
			}
		}
	}
	return nil
}

// fresh starts a new waiter for a key, on a client that has seen no fault.
func (w *world) fresh(key string) {
	j := &job{c: w.operator, name: "new", forever: true}
	w.operator.jobs = append(w.operator.jobs, j)
	want := acquisition{policy: renewal.Policy{TTL: 2 * time.Second, MaxFailures: 3}}
	want.req = tenure.Request{Verb: tenure.Acquire, Key: key, Owner: "new", TTL: 2 * time.Second}
	j.acquire(want, engine.Forever)
}

// arrived counts a waiter that got its key after the faults have stopped.
func (w *world) arrived(key string) {
	if w.arrivals == nil {
		w.arrivals = map[string]int{}
	}
	w.arrivals[key]++
}
