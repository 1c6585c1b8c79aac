package admission

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// queue hands out the turns of one resource. One write has the turn, the others
// wait in order of arrival.
//
// Among the writes of one key, the write with the newest token takes the first
// position of that key, and the others move back. So a replaced owner that
// sends without pause cannot keep its successor waiting, and no key gets before
// another by its tokens. When the successor has been admitted, refuse sends the
// older writes away.
type queue struct {
	mu      sync.Mutex
	taken   bool
	waiting []*waiter // in order of arrival
}

// waiter is a write that waits. Its reply is nil when it has the turn, or the
// reason for its refusal.
type waiter struct {
	stamp fence.Stamp // zero if it has none
	reply chan error
}

// take waits for the turn. Its error is the refusal of the write, errClosing if
// closing is closed first, or the cause for which ctx ended.
func (q *queue) take(ctx context.Context, stamp fence.Stamp, closing <-chan struct{}) error {
	w := &waiter{stamp: stamp, reply: make(chan error, 1)}
	q.mu.Lock()
	if !q.taken {
		q.taken = true
		q.mu.Unlock()
		return nil
	}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()
	var why error
	select {
	case err := <-w.reply:
		return err
	case <-closing:
		why = errClosing
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	q.mu.Lock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 && <-w.reply == nil { // the turn came at the same moment: pass it on
		q.pass()
	}
	return why
}

// try takes the turn if it is free.
func (q *queue) try() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken {
		return false
	}
	q.taken = true
	return true
}

// pass passes the turn to the next write. The caller has the turn.
func (q *queue) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.taken = false
		return
	}
	next := 0
	for i, w := range q.waiting {
		if outranks(w.stamp, q.waiting[next].stamp) {
			next = i
		}
	}
	w := q.waiting[next]
	// Older writes of the same key move back, each to the next position of that
	// key.
	for i := next - 1; i >= 0; i-- {
		if q.waiting[i].stamp.Key == w.stamp.Key {
			q.waiting[next] = q.waiting[i]
			next = i
		}
	}
	q.waiting = slices.Delete(q.waiting, 0, 1)
	w.reply <- nil
}

// outranked reports whether a write with a newer stamp waits.
func (q *queue) outranked(stamp fence.Stamp) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.waiting, func(w *waiter) bool { return outranks(w.stamp, stamp) })
}

// refuse refuses the waiting writes that a mark shuts out. The mark must have
// been read from its guard.
func (q *queue) refuse(mark fence.Mark) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) bool {
		err := shutOut(mark, w.stamp)
		if err != nil {
			w.reply <- err
		}
		return err != nil
	})
}

// outranks reports whether stamp a belongs to a newer owner of b's key.
func outranks(a, b fence.Stamp) bool { return a.Key == b.Key && a.Token > b.Token }

// shutOut returns the refusal of a stamp that cannot be admitted while the mark
// stands, or nil. It does not refuse a repeated number, which admit judges,
// nor a write without a stamp.
func shutOut(mark fence.Mark, stamp fence.Stamp) error {
	if mark.IsZero() || stamp == (fence.Stamp{}) {
		return nil
	}
	if _, err := mark.Admit(stamp); guard.Refused(err) && !errors.Is(err, fence.ErrRepeated) {
		return err
	}
	return nil
}
