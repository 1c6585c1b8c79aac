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
	// queue before it enters by itself.
	enterAfter = 50 * time.Millisecond
	// positionLasts is how long a store believes in its position. Servers
	// believe in it for longer. The store enters again after refreshAt.
	positionLasts = 10 * time.Second
	refreshAt     = 8 * time.Second
	// tryAgain is the pause after a store has found no position, because the
	// queue was full or the key unknown. Every further pause is twice as long,
	// up to refreshAt.
	tryAgain = time.Second
)

// Queue is one store's view of the queue of one key. newQueue makes one.
type Queue struct {
	waiters map[chan struct{}]struct{}
	// The store may have a position, because it has asked for one.
	queued   bool
	until    clock.Instant // it believes in its position until then; 0: it has none
	enter    clock.Instant // when to enter, or Never
	entering bool          // an Enter is under way
	pause    time.Duration // the pause after it found no position; 0: it has not tried
	// When to wake the waiters though another store was named, or Never.
	grace clock.Instant
}

func newQueue() Queue {
	return Queue{waiters: map[chan struct{}]struct{}{}, enter: clock.Never, grace: clock.Never}
}

// Waited reports whether somebody waits.
func (q *Queue) Waited() bool { return len(q.waiters) > 0 }

// Join adds a waiter. Its channel has room for one wake-up, which stands for
// any number of changes.
func (q *Queue) Join(now clock.Instant, c chan struct{}) {
	q.waiters[c] = struct{}{}
	if now >= q.until {
		q.enterSoon(now)
	}
}

// Leave removes a waiter and closes its channel, once. stepOut is true if it
// was the last waiter and the store may have a position in the queue: then
// leave the queue.
func (q *Queue) Leave(c chan struct{}) (stepOut bool) {
	if _, waits := q.waiters[c]; !waits {
		return false
	}
	delete(q.waiters, c)
	close(c)
	if q.Waited() {
		return false
	}
	stepOut = q.queued
	*q = newQueue()
	return stepOut
}

// Ask says that an acquire is about to be sent. It reports whether the acquire
// should ask for a position in the queue.
func (q *Queue) Ask() bool {
	q.queued = q.queued || q.Waited()
	return q.Waited()
}

// Refused says that the server has refused an acquire. inQueue says that it has
// put the store into the queue. stepOut is true if nobody waits any more: then
// leave the queue.
func (q *Queue) Refused(now clock.Instant, inQueue bool) (stepOut bool) {
	if inQueue && q.Waited() {
		q.inQueue(now)
	}
	return inQueue && !q.Waited()
}

// Granted says that the server has granted the key to an acquire of this store,
// and taken the store out of the queue.
func (q *Queue) Granted(now clock.Instant) {
	q.queued = false
	q.Dequeued(now)
}

// Dequeued says that the store no longer has a position in the queue.
func (q *Queue) Dequeued(now clock.Instant) {
	q.until, q.pause = 0, 0
	if q.Waited() {
		q.enterSoon(now)
	}
}

// Entered says that the store has tried to enter the queue by itself. inQueue
// says whether it has a position now. Without a position before, it may have
// missed changes. stepOut is true if nobody waits any more: then leave the
// queue.
func (q *Queue) Entered(now clock.Instant, inQueue bool) (stepOut bool) {
	q.entering = false
	switch {
	case !q.Waited():
		return inQueue
	case now >= q.until:
		q.wake()
	}
	if inQueue {
		q.inQueue(now)
		return false
	}
	q.pause = min(max(2*q.pause, tryAgain), refreshAt)
	q.queued, q.until, q.enter = true, 0, now.Add(q.pause)
	return false
}

// inQueue notes that the store has a position.
func (q *Queue) inQueue(now clock.Instant) {
	q.queued, q.until, q.enter, q.pause = true, now.Add(positionLasts), now.Add(refreshAt), 0
}

func (q *Queue) enterSoon(now clock.Instant) {
	q.enter = min(q.enter, now.Add(max(enterAfter, q.pause)))
}

// Changed says that the key may have changed. The server has named nobody.
func (q *Queue) Changed() { q.wake() }

// Freed says that the key is free. mine says that the server has named this
// store. random, from 0 up to 1, lengthens the grace by up to half.
func (q *Queue) Freed(now clock.Instant, mine bool, random float64) {
	switch {
	case mine:
		q.Dequeued(now)
		q.wake()
	case now >= q.until:
		q.wakeUnqueued(now)
	case q.grace == clock.Never:
		q.grace = now.Add(Grace + time.Duration(random*float64(Grace/2)))
	}
}

// Taken says that the key was granted to somebody. A store in the queue will
// also hear when it is free again, and wakes nobody now.
func (q *Queue) Taken(now clock.Instant) {
	if q.grace = clock.Never; now >= q.until {
		q.wakeUnqueued(now)
	}
}

// wakeUnqueued wakes all waiters of a store without a position, and asks for a
// position. A server may be silent about a key whose queue is empty.
func (q *Queue) wakeUnqueued(now clock.Instant) {
	q.wake()
	if q.Waited() {
		q.enterSoon(now)
	}
}

// Due returns when Tick has something to do, or Never.
func (q *Queue) Due() clock.Instant {
	if q.entering {
		return q.grace
	}
	return min(q.grace, q.enter)
}

// Tick says that time has passed. It reports whether the store must enter the
// queue now.
func (q *Queue) Tick(now clock.Instant) (enter bool) {
	if now >= q.grace {
		q.wake()
	}
	if now < q.enter || q.entering {
		return false
	}
	q.enter, q.entering, q.queued = clock.Never, true, true
	return true
}

// End closes the channels of all waiters. It reports whether the store may have
// a position in the queue.
func (q *Queue) End() (queued bool) {
	queued = q.queued
	for c := range q.waiters {
		close(c)
	}
	*q = newQueue()
	return queued
}

// wake wakes all waiters.
func (q *Queue) wake() {
	q.grace = clock.Never
	for c := range q.waiters {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
