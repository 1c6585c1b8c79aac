package engine

import (
	"time"

	"github.com/croft-dev/croft/internal/keep"
)

// actsAfter is how long a lease is kept before the engine asks to be told of
// operators' acts. A lease that ends sooner costs nothing.
const actsAfter = 250 * time.Millisecond

// acts is how the engine learns that an operator has taken a key away from one
// of its leases, sooner than by the next renewal.
type acts struct {
	watch watch
	alarm alarm // when to ask for hints
}

// watchActsSoon asks for hints after a while, unless that is under way.
func (e *Engine) watchActsSoon(d time.Duration) {
	a := &e.acts
	if e.o.Acts && a.watch == unwatched && a.alarm.index == 0 {
		e.alarms.set(&a.alarm, keep.After(e.now, d))
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
		e.acts.watch = watched
	case Broken:
		e.acts.watch = unwatched
		e.event(Event{Kind: Unwatched, Err: err})
		if len(e.leases) > 0 {
			e.watchActsSoon(keep.Spread(PollSettled, 0.5, 1, e.o.Random()))
		}
	case Unsupported:
		e.acts.watch = never
	}
}
