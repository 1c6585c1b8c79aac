package engine

import (
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
)

// actsAfter is how long a lease is kept before the engine asks to be told of
// operators' acts. A lease that ends sooner costs nothing.
const actsAfter = 250 * time.Millisecond

const (
	// actsBroken is the longest pause before the engine asks again for hints
	// that it did not get: they may be forbidden. The first is PollSettled.
	actsBroken = time.Minute
	// actsUnsupported is that pause if the store said that none will come. It
	// may be reached in another way by then.
	actsUnsupported = 10 * time.Minute
)

// acts is how the engine learns that an operator has taken a key away from one
// of its leases, sooner than by the next renewal.
type acts struct {
	watch    watch
	alarm    alarm         // when to ask for hints
	pause    time.Duration // before asking again; 0 while hints come
	earliest clock.Instant // when that is over
}

// watchActsSoon asks for hints after a while, unless that is under way.
func (e *Engine) watchActsSoon() {
	a := &e.acts
	if e.o.Acts && a.watch == unwatched && a.alarm.index == 0 {
		e.alarms.set(&a.alarm, max(keep.After(e.now, actsAfter), a.earliest))
	}
}

// watchActs asks for hints.
func (e *Engine) watchActs() {
	e.acts.watch = opening
	e.ready.Watch = append(e.ready.Watch, Acts)
}

// unwatchActs ends the hints, because no lease is kept.
func (e *Engine) unwatchActs() {
	a := &e.acts
	e.alarms.set(&a.alarm, keep.Never)
	if a.watch == opening || a.watch == watched {
		a.watch = unwatched
		e.ready.Unwatch = append(e.ready.Unwatch, Acts)
	}
}

// actsHint takes news of the hints themselves. What was done while they did not
// come is found by renewals.
func (e *Engine) actsHint(h Hint, err error) {
	switch h {
	case Watched, WatchedSince:
		e.acts.watch, e.acts.pause = watched, 0
	case Broken:
		e.event(Event{Kind: Unwatched, Err: err})
		e.retryActs(min(max(2*e.acts.pause, PollSettled), actsBroken))
	case Unsupported:
		e.retryActs(actsUnsupported)
	}
}

// retryActs asks for hints again after a pause, while a lease is kept.
func (e *Engine) retryActs(pause time.Duration) {
	a := &e.acts
	a.watch, a.pause = unwatched, pause
	a.earliest = keep.After(e.now, keep.Spread(pause, 0.5, 1, e.o.Random()))
	if len(e.leases) > 0 {
		e.watchActsSoon()
	}
}
