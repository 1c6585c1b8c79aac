package turns

import (
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

const (
	// Grace is how long the other stores leave a free key to the store that the
	// server has named. Up to half of it is added at random, so that they do
	// not all ask at once.
	Grace = 100 * time.Millisecond
	// enterAfter is how long a store waits for an acquire to put it into the
	// line before it enters by itself.
	enterAfter = 50 * time.Millisecond
	// placeLasts is how long a store believes in its place. Servers believe in
	// it for longer. The store enters again after refreshAt.
	placeLasts = 10 * time.Second
	refreshAt  = 8 * time.Second
	// tryAgain is the pause after a store has found no place, because the line
	// was full or the key unknown. Every further pause is twice as long, up to
	// refreshAt.
	tryAgain = time.Second
)

// Line is one store's view of the line of one key. newLine makes one.
type Line struct {
	waiters map[chan struct{}]struct{}
	// The store may have a place, because it has asked for one.
	placed   bool
	until    clock.Instant // it believes in its place until then; 0: it has none
	enter    clock.Instant // when to enter, or Never
	entering bool          // an Enter is under way
	pause    time.Duration // the pause after it found no place; 0: it has not tried
	// When to wake the waiters though another store was named, or Never.
	grace clock.Instant
}

func newLine() Line {
	return Line{waiters: map[chan struct{}]struct{}{}, enter: clock.Never, grace: clock.Never}
}

// Waited reports whether somebody waits.
func (l *Line) Waited() bool { return len(l.waiters) > 0 }

// Join adds a waiter. Its channel has room for one wake-up, which stands for
// any number of changes.
func (l *Line) Join(now clock.Instant, c chan struct{}) {
	l.waiters[c] = struct{}{}
	if now >= l.until {
		l.enterSoon(now)
	}
}

// Leave removes a waiter and closes its channel, once. stepOut is true if it
// was the last waiter and the store may have a place in the line: then leave
// the line.
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
// should ask for a place in the line.
func (l *Line) Ask() bool {
	l.placed = l.placed || l.Waited()
	return l.Waited()
}

// Refused says that the server has refused an acquire. inLine says that it has
// put the store into the line. stepOut is true if nobody waits any more: then
// leave the line.
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

// Displaced says that the store no longer has a place in the line.
func (l *Line) Displaced(now clock.Instant) {
	l.until, l.pause = 0, 0
	if l.Waited() {
		l.enterSoon(now)
	}
}

// Entered says that the store has tried to enter the line by itself. inLine
// says whether it has a place now. Without a place before, it may have missed
// changes. stepOut is true if nobody waits any more: then leave the line.
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

// inLine notes that the store has a place.
func (l *Line) inLine(now clock.Instant) {
	l.placed, l.until, l.enter, l.pause = true, now.Add(placeLasts), now.Add(refreshAt), 0
}

func (l *Line) enterSoon(now clock.Instant) {
	l.enter = min(l.enter, now.Add(max(enterAfter, l.pause)))
}

// Changed says that the key may have changed. The server has named nobody.
func (l *Line) Changed() { l.wake() }

// Freed says that the key is free. mine says that the server has named this
// store. random, from 0 up to 1, lengthens the grace by up to half.
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

// Taken says that the key was granted to somebody. A store in the line will
// also hear when it is free again, and wakes nobody now.
func (l *Line) Taken(now clock.Instant) {
	if l.grace = clock.Never; now >= l.until {
		l.wakeUnplaced(now)
	}
}

// wakeUnplaced wakes all waiters of a store without a place, and asks for a
// place. A server may be silent about a key whose line is empty.
func (l *Line) wakeUnplaced(now clock.Instant) {
	l.wake()
	if l.Waited() {
		l.enterSoon(now)
	}
}

// Due returns when Tick has something to do, or Never.
func (l *Line) Due() clock.Instant {
	if l.entering {
		return l.grace
	}
	return min(l.grace, l.enter)
}

// Tick says that time has passed. It reports whether the store must enter the
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
// a place in the line.
func (l *Line) End() (placed bool) {
	placed = l.placed
	for c := range l.waiters {
		close(c)
	}
	*l = newLine()
	return placed
}

// wake wakes all waiters.
func (l *Line) wake() {
	l.grace = clock.Never
	for c := range l.waiters {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
