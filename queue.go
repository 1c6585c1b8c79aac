package croft

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// lines are the local queues, one per key that somebody in this client holds or waits for. Only the head of a line talks to the store: a
// thousand waiters for one key are one waiter to it.
type lines struct {
	c     *Client
	mu    sync.Mutex
	byKey map[string]*line
}

// line is the queue for one key.
type line struct {
	key    string
	head   *place // has the turn, unless a lease of this client holds the key
	tail   *place
	holder *Lease
	others bool          // elsewhere somebody waits, too, and it is their turn
	passed int           // how often in a row the key was passed on here
	hint   bool          // the head shall ask the store again, soon, or see whether hints come
	news   chan struct{} // closed when something has become known: who holds the key, or that the store refused. Nil if nobody wants to know
	last   *tenure.HeldError
	lastAt clock.Instant
	watch  *watch // the store's hints about the key, kept from one head to the next
}

// place is one contender's place in a line.
type place struct {
	line          *line
	before, after *place
	cl            *claim
	start         clock.Instant // when it began to wait
	called        chan struct{} // closed when the turn comes; nil if nobody waits for it
	pursuit       *pursuit      // since it has asked
	lease         *Lease        // what it was granted, while the fence is raised for it
	turn          bool          // it is this one's turn
	begun         bool          // the one before has asked on its behalf
	gone          bool          // only its own contender changes it
}

// join takes the last place in the line for a claim's key, and tells whether it has the turn.
func (q *lines) join(cl *claim, start clock.Instant) (p *place, turn bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.of(cl.key())
	p = &place{line: ln, cl: cl, start: start}
	if p.before = ln.tail; p.before == nil {
		ln.head = p
	} else {
		p.before.after = p
	}
	ln.tail = p
	q.next(ln)
	return p, p.turn
}

// leave takes a contender out of its line. The caller holds the mutex.
func (p *place) leave() {
	p.gone = true
	if p.before == nil {
		p.line.head = p.after
	} else {
		p.before.after = p.after
	}
	if p.after == nil {
		p.line.tail = p.before
	} else {
		p.after.before = p.before
	}
	p.before, p.after = nil, nil
}

// call tells a contender that it is its turn. The caller holds the mutex.
func (p *place) call() {
	if p.turn {
		return
	}
	p.turn = true
	if p.called != nil {
		close(p.called)
	}
}

// of is the line for a key. The caller holds the mutex.
func (q *lines) of(key string) *line {
	ln := q.byKey[key]
	if ln == nil {
		ln = &line{key: key}
		q.byKey[key] = ln
	}
	return ln
}

// next gives the turn to the head if the key is not held here, and forgets the line if nobody is left. The caller holds the mutex.
func (q *lines) next(ln *line) {
	if ln.head != nil {
		if ln.holder == nil {
			ln.head.call()
		}
		return
	}
	if ln.watch != nil {
		ln.watch.cancel()
		ln.watch = nil
	}
	switch {
	case ln.holder != nil:
	case ln.others: // who comes back within a moment shall know of them
		time.AfterFunc(keep.Courtesy, func() { q.forget(ln) })
	case q.byKey[ln.key] == ln:
		delete(q.byKey, ln.key)
	}
}

// forget drops a line that was kept for the sake of others, unless somebody has come back to it.
func (q *lines) forget(ln *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln.holder == nil && ln.head == nil {
		ln.others = false
		q.next(ln)
	}
}

// stepAside gives a place up. It may be called again.
func (q *lines) stepAside(p *place) {
	if p.gone {
		return
	}
	q.mu.Lock()
	left := p.begun
	p.begun = false
	p.leave()
	q.next(p.line)
	q.mu.Unlock()
	if left {
		p.pursuit.abandon()
	}
}

// granted tells the line that the key is held: the head was granted it, and may take a while to raise the fence.
func (q *lines) granted(p *place, l *Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.lease = l
	q.tell(p.line)
}

// occupy lets a lease hold the line of the contender that was granted it, until vacate.
func (q *lines) occupy(p *place, l *Lease) {
	q.mu.Lock()
	p.leave()
	p.line.holder, p.line.last = l, nil // who held it before is no news any more
	q.tell(p.line)
	q.next(p.line)
	q.mu.Unlock()
	if l.end() != nil {
		q.vacate(l) // it ended before it could be found here
	}
}

// vacate lets the next contender go on, if the lease held the line, and wakes the head if it did not.
func (q *lines) vacate(l *Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.byKey[l.Key()]
	switch {
	case ln == nil:
	case ln.holder == l:
		ln.holder, ln.last = nil, nil
		q.next(ln)
	case ln.holder == nil:
		if ln.watch != nil {
			ln.watch.heard = true
		}
		ln.wake()
	}
}

// reoccupy lets a lease that was resumed hold the line again, unless others have come.
func (q *lines) reoccupy(l *Lease) {
	q.mu.Lock()
	if ln := q.of(l.Key()); ln.holder == nil && ln.head == nil {
		ln.holder = l
	}
	q.mu.Unlock()
	if l.Err() != nil {
		q.vacate(l)
	}
}

// refused notes the store's refusal for those in line who want to know.
func (q *lines) refused(p *place, held *tenure.HeldError, now clock.Instant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.line.last, p.line.lastAt = held, now
	q.tell(p.line)
}

// tell wakes those in line who want to know what has become known. The caller holds the mutex.
func (q *lines) tell(ln *line) {
	if ln.news != nil {
		close(ln.news)
		ln.news = nil
	}
}

// wake lets the head look at the hint, now or when it comes to it. The caller holds the mutex.
func (ln *line) wake() {
	ln.hint = true
	if ln.head != nil && ln.head.pursuit != nil {
		ln.head.pursuit.mail.ring()
	}
}

// stand waits for the turn of a contender, and no longer than it is willing to. One that wants a single try, or whose time is over, learns what the
// head learns: that the key is held is as true for it. If the key is just being passed on, it waits for that.
func (q *lines) stand(ctx context.Context, p *place) error {
	c, start, patience := q.c, p.start, p.cl.o.WaitFor
	limit := c.o.CallTimeout // for a single try: the head's own
	if patience > 0 {
		limit = min(patience, Forever-patientFor) + patientFor
	}
	for {
		waited := c.clk.Now().Sub(start)
		over := waited >= patience
		q.mu.Lock()
		if p.turn {
			q.mu.Unlock()
			return nil
		}
		if p.called == nil {
			p.called = make(chan struct{})
		}
		var news chan struct{}
		if over { // else only the turn and the time matter
			if p.line.news == nil {
				p.line.news = make(chan struct{})
			}
			news = p.line.news
		}
		refusal := q.refusal(p.line, start, patience > 0)
		if refusal == nil && patience == 0 {
			p.line.wake()
		}
		q.mu.Unlock()

		left := patience - waited
		if over {
			left = limit - waited
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for %q: %w", p.line.key, ended(ctx))
		case refusal != nil && over:
			return refusal
		case left <= 0:
			return store.Unknown(fmt.Errorf("waiting for %q: the store has not told the contender before this one whether it is held; check that it can be reached", p.line.key))
		case isClosed(c.closing):
			return fmt.Errorf("waiting for %q: %w", p.line.key, ErrClosed)
		}
		timer := c.clk.Timer(min(left, patientFor))
		tick := timer.C()
		if patience == Forever { // many may wait like this, and none of them for the time
			timer.Stop()
			tick = nil
		}
		select {
		case <-p.called:
		case <-news:
		case <-ctx.Done():
		case <-c.closing:
		case <-tick:
		}
		timer.Stop()
	}
}

// refusal is why the key cannot be had now, as far as this client knows, or nil. Unless any knowledge will do, it must be as new as the question.
// The caller holds the mutex.
func (q *lines) refusal(ln *line, asked clock.Instant, anyAge bool) error {
	holders := [2]*Lease{ln.holder} // it may be over, and the key passed on
	if ln.head != nil {
		holders[1] = ln.head.lease
	}
	for _, l := range holders {
		if l == nil {
			continue
		}
		if held := l.asHeld(); held != nil {
			return held
		}
	}
	if ln.last == nil || !anyAge && ln.lastAt < asked {
		return nil
	}
	held := *ln.last
	held.Now = held.Now.Add(min(q.c.clk.Now().Sub(ln.lastAt), held.Remaining()))
	return &held
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
