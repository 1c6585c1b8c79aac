package engine

import (
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
)

// actsAfter is how long the engine keeps a lease before it asks for hints about
// operators' acts. A lease that ends sooner costs nothing.
const actsAfter = 250 * time.Millisecond

const (
	// actsBroken is the longest pause before the engine asks again for hints
	// that broke off: perhaps they are forbidden. The first pause is
	// PollSettled.
	actsBroken = time.Minute
	// actsUnsupported is the pause after the store said that it has no such
	// hints. By then the client may reach the store in another way.
	actsUnsupported = 10 * time.Minute
)

// acts watches for operators' acts. With these hints the engine learns before
// the next renewal that an operator has taken a key away.
type acts struct {
	watch    watch
	alarm    alarm         // when to ask for hints
	pause    time.Duration // before asking again; 0 while hints come
	earliest clock.Instant // when that pause is over
}

// watchActsSoon asks for hints after a while, unless the engine has already
// asked.
func (e *Engine) watchActsSoon() {
	a := &e.acts
	if e.o.Acts && a.watch == unwatched && a.alarm.index == 0 {
		e.alarms.set(&a.alarm, max(renewal.After(e.now, actsAfter), a.earliest))
	}
}

// watchActs asks for hints.
func (e *Engine) watchActs() {
	e.acts.watch = opening
	e.ready.Watch = append(e.ready.Watch, Acts)
}

// unwatchActs ends the hints, because no lease is left.
func (e *Engine) unwatchActs() {
	a := &e.acts
	e.alarms.set(&a.alarm, renewal.Never)
	if a.watch == opening || a.watch == watched {
		a.watch = unwatched
		e.ready.Unwatch = append(e.ready.Unwatch, Acts)
	}
}

// actsHint takes news about the hints themselves. The first hints come some
// time after the first lease, so the engine then asks about the leases that it
// has. An act that was not announced while hints were broken is found by the
// next renewal.
func (e *Engine) actsHint(h Hint, err error) {
	switch h {
	case Watched:
		first := e.acts.pause == 0
		e.acts.watch, e.acts.pause = watched, 0
		if !first {
			return
		}
		for _, l := range slices.Clone(e.leases) {
			e.stepLease(l, renewal.Doubted{Once: true}) // may end the last lease, and with it the hints
		}
	case Broken:
		e.event(Event{Kind: Unwatched, Err: err})
		e.retryActs(min(max(2*e.acts.pause, PollSettled), actsBroken))
	case Unsupported:
		e.retryActs(actsUnsupported)
	}
}

// retryActs asks for hints again after a pause, if the engine then keeps a
// lease.
func (e *Engine) retryActs(pause time.Duration) {
	a := &e.acts
	a.watch, a.pause = unwatched, pause
	a.earliest = renewal.After(e.now, renewal.Spread(pause, 0.5, 1, e.o.Random()))
	if len(e.leases) > 0 {
		e.watchActsSoon()
	}
}
