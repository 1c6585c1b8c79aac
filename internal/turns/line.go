package turns

import (
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

const (
	// Grace is how long the others give the one whose turn it is. Up to half of
	// it is added at random, so that they do not all ask at once.
	Grace = 100 * time.Millisecond
	// enterAfter is how long a store waits for an acquire to put it into the
	// line before it enters on its own.
	enterAfter = 50 * time.Millisecond
	// placeLasts is how long a store believes in its place. Servers believe in
	// it for longer. The store enters again when refreshAt has passed.
	placeLasts = 10 * time.Second
	refreshAt  = 8 * time.Second
	// tryAgain is when a store enters again that has found no place: the line
	// was full, or the key unknown. Every further pause is twice as long, up to
	// refreshAt.
	tryAgain = time.Second
)

// Line is one store's part in the line of one key. Make it with newLine.
type Line struct {
	waiters  map[chan struct{}]struct{}
	placed   bool          // the store may have a place: it has asked for one
	until    clock.Instant // it counts on its place until then; 0 if on none
	enter    clock.Instant // when to enter, or Never
	entering bool          // that is under way
	pause    time.Duration // since it entered in vain; 0 if it did not
	grace    clock.Instant // when to wake though it is another's turn, or Never
}

func newLine() Line {
	return Line{waiters: map[chan struct{}]struct{}{}, enter: clock.Never, grace: clock.Never}
}

// Waited reports whether somebody waits.
func (l *Line) Waited() bool { return len(l.waiters) > 0 }

// Join adds a waiter. Its channel has room for one wake-up, which stands for any
// number of changes.
func (l *Line) Join(now clock.Instant, c chan struct{}) {
	l.waiters[c] = struct{}{}
	if now >= l.until {
		l.enterSoon(now)
	}
}

// Leave takes a waiter out and closes its channel, once. If it was the last, and
// the store may have a place in line, stepOut says to give that up.
func (l *Line) Leave(c chan struct{}) (stepOut bool) {
	if _, waits := l.waiters[c]; !waits {
		return false
	}
	delete(l.waiters, c)
	close(c)
	if l.Waited() {
		return false
	}
	stepOut = l.placed
	*l = newLine()
	return stepOut
}

// Ask says that an acquire is about to be sent. It reports whether the acquire
// is to ask for a place in line.
func (l *Line) Ask() bool {
	l.placed = l.placed || l.Waited()
	return l.Waited()
}

// Refused says that the server has refused an acquire. inLine says that it has
// put the store into the line. If nobody waits any more, stepOut says to leave
// the line again.
func (l *Line) Refused(now clock.Instant, inLine bool) (stepOut bool) {
	if inLine && l.Waited() {
		l.inLine(now)
	}
	return inLine && !l.Waited()
}

// Granted says that the server has granted the key to an acquire of this store,
// and taken the store out of the line.
func (l *Line) Granted(now clock.Instant) {
	l.placed = false
	l.Displaced(now)
}

// Displaced says that the store has no place in line any more.
func (l *Line) Displaced(now clock.Instant) {
	l.until, l.pause = 0, 0
	if l.Waited() {
		l.enterSoon(now)
	}
}

// Entered says that the store has tried to enter the line on its own, and
// whether it has a place now. What happened before that was perhaps not told.
func (l *Line) Entered(now clock.Instant, inLine bool) (stepOut bool) {
	l.entering = false
	switch {
	case !l.Waited():
		return inLine
	case now >= l.until:
		l.wake()
	}
	if inLine {
		l.inLine(now)
		return false
	}
	l.pause = min(max(2*l.pause, tryAgain), refreshAt)
	l.placed, l.until, l.enter = true, 0, now.Add(l.pause)
	return false
}

// inLine notes a place.
func (l *Line) inLine(now clock.Instant) {
	l.placed, l.until, l.enter, l.pause = true, now.Add(placeLasts), now.Add(refreshAt), 0
}

func (l *Line) enterSoon(now clock.Instant) {
	l.enter = min(l.enter, now.Add(max(enterAfter, l.pause)))
}

// Changed says that the key may have changed, and that the server has named
// nobody.
func (l *Line) Changed() { l.wake() }

// Freed says that the key is free, and whether the server has named this store.
// Up to half of the grace is added by random, from 0 up to 1.
func (l *Line) Freed(now clock.Instant, mine bool, random float64) {
	switch {
	case mine:
		l.Displaced(now)
		l.wake()
	case now >= l.until:
		l.wakeUnplaced(now)
	case l.grace == clock.Never:
		l.grace = now.Add(Grace + time.Duration(random*float64(Grace/2)))
	}
}

// Taken says that the key has been granted to somebody. A store that stands in
// the line hears of the end of that, too, and wakes nobody.
func (l *Line) Taken(now clock.Instant) {
	if l.grace = clock.Never; now >= l.until {
		l.wakeUnplaced(now)
	}
}

// wakeUnplaced tells all who wait, though the store has no place in line. It
// asks for one: a server need not tell of a key that nobody stands in line for.
func (l *Line) wakeUnplaced(now clock.Instant) {
	l.wake()
	if l.Waited() {
		l.enterSoon(now)
	}
}

// Due is when Tick has something to do, or Never.
func (l *Line) Due() clock.Instant {
	if l.entering {
		return l.grace
	}
	return min(l.grace, l.enter)
}

// Tick says that time has passed. It reports whether the store is to enter the
// line now.
func (l *Line) Tick(now clock.Instant) (enter bool) {
	if now >= l.grace {
		l.wake()
	}
	if now < l.enter || l.entering {
		return false
	}
	l.enter, l.entering, l.placed = clock.Never, true, true
	return true
}

// End closes the channels of all waiters. It reports whether the store may have
// a place in line.
func (l *Line) End() (placed bool) {
	placed = l.placed
	for c := range l.waiters {
		close(c)
	}
	*l = newLine()
	return placed
}

// wake tells all who wait.
func (l *Line) wake() {
	l.grace = clock.Never
	for c := range l.waiters {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
